// Runs the blocks of a launch one after another, and the threads of a block in turn, each until it waits or ends.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.hpp"
#include "fibers.hpp"

emulated::Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

enum class Status : unsigned char { Fresh, Ready, AtBarrier, InWarp, Ended };

struct Thread {
    Context context;
    char* stack;
    Status status;
    // The line of the barrier; the operation of the warp and what the thread brings.
    unsigned line;
    const char* what;
    Combine* combine;
    unsigned mask;
    void* operand;
};

static const unsigned THREADS = 1024;

State state;
static Thread threads[THREADS];
static Context scheduler;
static unsigned waiting;
static unsigned epoch;
static unsigned warp_epochs[THREADS / 32];
// Stacks that no thread has: few are used where threads do not wait.
static char* idle_stacks[THREADS];
static unsigned idle_count;
static void (*body)(const Memory*);
static const Memory* arguments;

static Thread& current() { return threads[state.thread]; }

static void stamp() {
    state.now = (Word)epoch << 32 | (Word)warp_epochs[state.thread / 32] << 10 | state.thread;
}

static void record_v(const char* format, va_list list) {
    if (state.failed) return;
    state.failed = true;
    vsnprintf(state.message, sizeof state.message, format, list);
}

void record(const char* format, ...) {
    va_list list;
    va_start(list, format);
    record_v(format, list);
    va_end(list);
}

const char* block_name(Word block) {
    static char text[64];
    const unsigned x = state.request.grid[0], y = state.request.grid[1];
    snprintf(text, sizeof text, "(%llu, %llu, %llu)", block % x, block / x % y, block / x / y);
    return text;
}

Word block_at(Moment m) {
    const Word first = state.request.first;
    Word low = first, high = state.block;
    while (low < high) {
        const Word middle = (low + high + 1) / 2;
        if (state.first_epochs[middle - first] <= epoch_of(m)) low = middle;
        else high = middle - 1;
    }
    return low;
}

void fail(const char* format, ...) {
    char what[768];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    record("block %s, thread %u: %s", block_name(state.block), state.thread, what);
    switch_context(current().context, scheduler);
    abort();  // what has failed is not resumed
}

static void wait() { switch_context(current().context, scheduler); }

static void start() {
    body(arguments);
    current().status = Status::Ended;
    wait();
}

void barrier(unsigned line) {
    const unsigned count = state.request.block;
    current().line = line;
    if (waiting + 1 < count) {
        waiting += 1;
        current().status = Status::AtBarrier;
        return wait();
    }
    for (unsigned i = 0; i < count; i++)
        if (threads[i].line != line)
            fail("waits at the barrier of line %u, thread %u at that of line %u", line, i, threads[i].line);
    if (!are_warpgroups_alike()) switch_context(current().context, scheduler);
    for (unsigned i = 0; i < count; i++) threads[i].status = Status::Ready;
    waiting = 0;
    epoch += 1;
    settle_writes();
    memset(warp_epochs, 0, sizeof warp_epochs);
    stamp();
}

unsigned lane() { return state.thread % 32; }

// The lanes that the warp of a thread has in this block.
static unsigned lanes_of(unsigned thread) {
    const unsigned beyond = state.request.block - thread / 32 * 32;
    return beyond >= 32 ? 0xffffffffu : (1u << beyond) - 1;
}

void order_warp(unsigned mask) {
    unsigned& warp_epoch = warp_epochs[state.thread / 32];
    if (mask == lanes_of(state.thread) && warp_epoch < 0x3fffff) warp_epoch += 1;
}

static bool meets(const Thread& a, const Thread& b) {
    return b.status == Status::InWarp && a.what == b.what && a.combine == b.combine && a.mask == b.mask;
}

void meet(const char* what, Combine* combine, unsigned mask, void* operand) {
    Thread& mine = current();
    const unsigned first = state.thread / 32 * 32, lanes = lanes_of(state.thread);
    if (!(mask >> lane() & 1)) fail("calls %s with the mask %08x, which does not name the thread's lane", what, mask);
    mine.what = what;
    mine.combine = combine;
    mine.mask = mask;
    mine.operand = operand;
    mine.status = Status::InWarp;
    void* operands[32] = {};
    // The last lane, which mostly arrives last, first.
    for (unsigned i = 32; i-- > 0;) {
        if (!(mask & lanes & 1u << i)) continue;
        if (!meets(mine, threads[first + i])) return wait();
        operands[i] = threads[first + i].operand;
    }
    combine(operands, mask & lanes);
    for (unsigned i = 0; i < 32; i++)
        if (mask & lanes & 1u << i) threads[first + i].status = Status::Ready;
    stamp();
}

static void describe(const Thread& thread, char* text, size_t size) {
    if (thread.status == Status::Ended) snprintf(text, size, "has ended");
    else if (thread.status == Status::AtBarrier) snprintf(text, size, "waits at the barrier of line %u", thread.line);
    else snprintf(text, size, "waits in %s with the mask %08x", thread.what, thread.mask);
}

static void record_divergence(unsigned i, unsigned other) {
    char mine[128], its[128];
    describe(threads[i], mine, sizeof mine);
    describe(threads[other], its, sizeof its);
    record("block %s, thread %u: divergence: %s, thread %u %s", block_name(state.block), i, mine, other, its);
}

// Names the first thread that waits for another one which does not come.
static void record_standstill() {
    const unsigned count = state.request.block;
    for (unsigned i = 0; i < count; i++) {
        if (threads[i].status != Status::InWarp) continue;
        for (unsigned k = 0; k < 32; k++) {
            const unsigned other = i / 32 * 32 + k;
            if (threads[i].mask >> k & 1 && other < count && !meets(threads[i], threads[other]))
                return record_divergence(i, other);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (threads[i].status != Status::AtBarrier) continue;
        for (unsigned other = 0; other < count; other++)
            if (threads[other].status != Status::AtBarrier) return record_divergence(i, other);
    }
}

static void resume(unsigned i) {
    Thread& thread = threads[i];
    state.thread = i;
    threadIdx = Index3{i, 0, 0};
    stamp();
    if (thread.status == Status::Fresh) {
        thread.stack = idle_stacks[--idle_count];
        prepare(thread.context, thread.stack, start);
        thread.status = Status::Ready;
    }
    switch_context(scheduler, thread.context);
    if (thread.status == Status::Ended) idle_stacks[idle_count++] = thread.stack;
}

static void run_block() {
    const unsigned count = state.request.block;
    waiting = 0;
    memset(warp_epochs, 0, sizeof warp_epochs);
    for (unsigned i = 0; i < count; i++) threads[i].status = Status::Fresh;
    for (;;) {
        bool moved = false, ended = true;
        for (unsigned i = 0; i < count; i++) {
            if (threads[i].status == Status::Fresh || threads[i].status == Status::Ready) {
                moved = true;
                resume(i);
                if (state.failed) return;
            }
            ended &= threads[i].status == Status::Ended;
        }
        if (ended) {
            are_warpgroups_alike();
            return;
        }
        if (!moved) return record_standstill();
    }
}

static void run_blocks() {
    const Request& request = state.request;
    const Word all = (Word)request.grid[0] * request.grid[1] * request.grid[2];
    if (request.first > request.last || request.last > all)
        return record("blocks %llu to %llu of %llu", request.first, request.last, all);
    const Word blocks = request.last - request.first;
    state.first_epochs = (unsigned*)malloc((blocks ? blocks : 1) * sizeof(unsigned));
    if (!state.first_epochs) return record("the host's memory does not suffice for %llu blocks", blocks);
    blockDim = Index3{request.block, 1, 1};
    gridDim = Index3{request.grid[0], request.grid[1], request.grid[2]};
    epoch = 0;
    for (Word block = request.first; block < request.last && !state.failed; block++) {
        epoch += 1;
        state.block = block;
        state.first_epoch = epoch;
        state.first_epochs[block - request.first] = epoch;
        blockIdx = Index3{(unsigned)(block % gridDim.x), (unsigned)(block / gridDim.x % gridDim.y),
                          (unsigned)(block / gridDim.x / gridDim.y)};
        forget_shared();
        forget_copies();
        forget_products();
        forget_seen();
        run_block();
    }
    free(state.first_epochs);
}

bool in_phase(unsigned number) {
    if (number > state.phase) state.has_more = true;
    return number == state.phase;
}

const char* run(const char* function, unsigned limit, const Request& request, const Parameter* parameters,
                unsigned count, void (*call)(const Memory*)) {
    static Memory memories[256];
    state = State();
    state.function = function;
    state.request = request;
    const unsigned* const grid = request.grid;
    const bool grid_fits = grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && grid[0] <= 0x7fffffffu && grid[1] <= 65535 &&
                           grid[2] <= 65535;
    if (request.block == 0 || request.block > limit || request.block > THREADS)
        record("blocks of %u threads, of %u at most", request.block, limit < THREADS ? limit : THREADS);
    else if (!grid_fits)
        record("a grid of (%u, %u, %u) blocks, which a device does not take", grid[0], grid[1], grid[2]);
    else if (bind(parameters, count, memories)) {
        body = call;
        arguments = memories;
        if (char* const stacks = new_stacks(request.block)) {
            for (idle_count = 0; idle_count < request.block; idle_count++)
                idle_stacks[idle_count] = stacks + idle_count * STACK;
            for (bool first = true; first || (state.has_more && !state.failed); first = false) {
                if (!first) {
                    forget_parameters();
                    state.phase += 1;
                }
                state.has_more = false;
                run_blocks();
            }
            free_stacks(stacks, request.block);
        } else {
            record("the host's memory does not suffice for the stacks of threads");
        }
        drop_shared();
    }
    unbind();
    return state.failed ? state.message : nullptr;
}

}  // namespace emulated
