// Shadow memory: checks of bounds, alignment, uninitialised reads and data races.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.hpp"

namespace emulated {

// Accesses of one sort. Of those in the latest epoch two are kept, such that any later access that is in a race with
// some of them is in a race with one that is kept: two of different warps, or the latest ones of the only warp. And one
// of another block, if there is one.
struct Trail {
    Moment first, second, foreign;
};

// What happened to an element since it was last written. What came before the write is ordered with all that is ordered
// with the write.
struct Cell {
    Moment written;
    Trail read, updated;
    // How many fences of its writes the writer had done when it wrote, and products that are not waited for and read this.
    unsigned fences, pending;
};

// Fences of their writes that threads have done, and how many of them before the latest barrier.
static unsigned fences[1024], settled[1024];

void fence_writes() { fences[state.thread] += 1; }

void settle_writes() { memcpy(settled, fences, sizeof settled); }

// What blocks did in these epochs, before they came to a number at which blocks meet.
struct Visit {
    const void* number;
    unsigned first, end;
};
struct Visits {
    Visit* list;
    Word count, room;
};
// Of all blocks of the launch, and those of other blocks that the current one sees.
static Visits visits, seen;

static void add(Visits& to, const Visit& visit) {
    if (to.count == to.room) {
        to.room = to.room ? 2 * to.room : 64;
        to.list = (Visit*)realloc(to.list, to.room * sizeof(Visit));
        if (!to.list) fail("the host's memory does not suffice for a record of blocks");
    }
    to.list[to.count++] = visit;
}

void meet_blocks(const void* number, bool is_last) {
    add(visits, Visit{number, state.first_epoch, epoch_of(state.now)});
    if (!is_last) return;
    Word left = 0;
    for (Word i = 0; i < visits.count; i++) {
        if (visits.list[i].number == number) add(seen, visits.list[i]);
        else visits.list[left++] = visits.list[i];
    }
    visits.count = left;
}

void forget_seen() { seen.count = 0; }

static bool is_seen(Moment earlier) {
    const unsigned epoch = epoch_of(earlier);
    for (Word i = 0; i < seen.count; i++)
        if (seen.list[i].first <= epoch && epoch < seen.list[i].end) return true;
    return false;
}

// Whether what happened `earlier` comes before what happens now in every order of execution.
static bool ordered(Moment earlier) {
    const Moment now = state.now;
    if (earlier == 0) return true;
    if (epoch_of(earlier) != epoch_of(now)) return of_this_block(earlier) || is_seen(earlier);
    if (thread_of(earlier) == thread_of(now)) return true;
    return warp_of(earlier) == warp_of(now) && warp_epoch_of(earlier) < warp_epoch_of(now);
}

// One that is in a race with the current access, or zero.
static Moment racing(const Trail& trail) {
    if (trail.first == 0) return 0;
    if (!ordered(trail.foreign)) return trail.foreign;
    if (!ordered(trail.first)) return trail.first;
    if (!ordered(trail.second)) return trail.second;
    return 0;
}

static void add(Trail& trail) {
    const Moment now = state.now;
    if (epoch_of(trail.first) != epoch_of(now)) {
        if (trail.first != 0 && !of_this_block(trail.first)) trail.foreign = trail.first;
        trail.first = now;
        trail.second = 0;
        return;
    }
    if (trail.second != 0 && warp_of(trail.second) != warp_of(trail.first)) return;
    if (warp_of(now) != warp_of(trail.first)) {
        trail.second = now;
    } else if (warp_epoch_of(now) != warp_epoch_of(trail.first)) {
        trail.first = now;
        trail.second = 0;
    } else if (thread_of(now) != thread_of(trail.first)) {
        trail.second = now;
    }
}

static const char* verb(Access kind) {
    return kind == Access::Read ? "reads" : kind == Access::Write ? "writes" : "atomically updates";
}

struct Name {
    char text[96];
};

static Name name_of(const Memory& memory) {
    Name name;
    if (memory.parameter >= 0)
        snprintf(name.text, sizeof name.text, "parameter %d", memory.parameter);
    else
        snprintf(name.text, sizeof name.text, "shared array %.64s", memory.name);
    return name;
}

[[noreturn]] static void fail_race(const Memory& memory, long long at, Access kind, Moment other,
                                   const char* participle) {
    const long long index = at / memory.element;
    const Name name = name_of(memory);
    if (of_this_block(other))
        fail("race: %s %s at index %lld, which thread %u has %s with no barrier in between", verb(kind),
             name.text, index, thread_of(other), participle);
    fail("race: %s %s at index %lld, which thread %u of block %s has %s in the same launch", verb(kind),
         name.text, index, thread_of(other), block_name(block_at(other)), participle);
}

static void visit(const Memory& memory, long long at, Access kind, Cell& cell) {
    if (memory.parameter < 0 && kind != Access::Write && cell.written == 0)
        fail("%s %s at index %lld, which the block has not written", verb(kind), name_of(memory).text,
             at / memory.element);
    if (!ordered(cell.written)) fail_race(memory, at, kind, cell.written, "written");
    if (kind != Access::Read)
        if (const Moment other = racing(cell.read)) fail_race(memory, at, kind, other, "read");
    if (kind != Access::Atomic)
        if (const Moment other = racing(cell.updated)) fail_race(memory, at, kind, other, "atomically updated");
    if (kind != Access::Read && cell.pending)
        fail("%s %s at index %lld, which a product reads that is not waited for", verb(kind), name_of(memory).text,
             at / memory.element);
    if (kind == Access::Read) {
        add(cell.read);
    } else if (kind == Access::Atomic) {
        add(cell.updated);
    } else {
        memset(&cell, 0, sizeof cell);
        cell.written = state.now;
        cell.fences = fences[state.thread];
    }
}

void* access(const Memory& memory, long long at, unsigned bytes, Access kind) {
    if (at < 0 || at > memory.bytes || memory.bytes - at < bytes) {
        const long long element = memory.element;
        // Rounded down, so that what lies before the array has a negative index.
        const long long index = (at < 0 ? at - element + 1 : at) / element;
        fail("%s %s at index %lld of %lld elements (%u bytes)", verb(kind), name_of(memory).text, index,
             memory.bytes / element, bytes);
    }
    unsigned char* const address = memory.base + at;
    if ((uintptr_t)address % bytes != 0)
        fail("%s %u bytes of %s at index %lld, at an address that is not a multiple of %u", verb(kind), bytes,
             name_of(memory).text, at / memory.element, bytes);
    if (memory.cells) {
        const long long granule = memory.granule;
        for (long long cell = at / granule; cell * granule < at + bytes; cell++)
            visit(memory, cell * granule, kind, memory.cells[cell]);
    }
    return address;
}

void invalidate(const Memory& memory, long long at, unsigned bytes) {
    if (!memory.cells) return;
    for (long long cell = at / memory.granule; cell * memory.granule < at + bytes; cell++)
        memory.cells[cell].written = 0;
}

Cell* new_cells(Word count) { return (Cell*)calloc(count ? count : 1, sizeof(Cell)); }

static const unsigned PARAMETERS = 256;
static Cell* groups[PARAMETERS];
static Word group_cells[PARAMETERS];
static unsigned group_count;

// Cells from which on a record takes address space, and memory only where elements are touched.
static const Word LARGE = 1 << 20;

static Cell* reserve_cells(Word count) {
    if (count < LARGE) return new_cells(count);
    void* const cells =
        mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return cells == MAP_FAILED ? nullptr : (Cell*)cells;
}

static void release_cells(Cell* cells, Word count) {
    if (count < LARGE) free(cells);
    else munmap(cells, count * sizeof(Cell));
}

bool bind(const Parameter* parameters, unsigned count, Memory* memories) {
    group_count = 0;
    if (state.request.count != count || count > PARAMETERS) {
        record("takes %u parameters (at most %u) and is given %llu", count, PARAMETERS, state.request.count);
        return false;
    }
    unsigned order[PARAMETERS];
    for (unsigned i = 0; i < count; i++) {
        const Region& region = state.request.regions[i];
        memories[i] = Memory{region.base, (long long)region.bytes, parameters[i].element, nullptr, 1, (int)i, nullptr};
        if ((uintptr_t)region.base % parameters[i].element != 0) {
            record("parameter %u is not aligned to its elements of %u bytes", i, parameters[i].element);
            return false;
        }
        unsigned at = i;
        for (; at > 0 && memories[order[at - 1]].base > region.base; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (unsigned from = 0, to; from < count; from = to) {
        unsigned char* const base = memories[order[from]].base;
        const unsigned char* end = base;
        unsigned granule = 16;
        bool written = false;
        for (to = from; to < count; to++) {
            const Memory& memory = memories[order[to]];
            if (to > from && memory.base >= end) break;
            if (memory.base + memory.bytes > end) end = memory.base + memory.bytes;
            written |= parameters[order[to]].written;
            while ((uintptr_t)(memory.base - base) % granule != 0 || memory.element % granule != 0) granule /= 2;
        }
        if (!written) continue;
        const Word needed = (Word)(end - base) / granule + 1;
        Cell* const cells = reserve_cells(needed);
        if (!cells) {
            record("the host's memory does not suffice for a record of accesses");
            return false;
        }
        group_cells[group_count] = needed;
        groups[group_count++] = cells;
        for (unsigned i = from; i < to; i++) {
            memories[order[i]].cells = cells + (memories[order[i]].base - base) / granule;
            memories[order[i]].granule = granule;
        }
    }
    return true;
}

void unbind() {
    visits.count = seen.count = 0;
    while (group_count > 0) {
        group_count -= 1;
        release_cells(groups[group_count], group_cells[group_count]);
    }
}

void forget_parameters() {
    visits.count = 0;
    for (unsigned i = 0; i < group_count; i++) memset((void*)groups[i], 0, group_cells[i] * sizeof(Cell));
}

// What a device gives a block without being asked for more at the launch, and what it has.
static const Word SHARED_BYTES = 48 * 1024, ALL_SHARED_BYTES = 227 * 1024;
static const unsigned SHARED_ARRAYS = 64;
alignas(1024) static unsigned char shared_bytes[ALL_SHARED_BYTES];
// Addresses below are the system's.
static const unsigned SHARED_BEGIN = 1024;
static Word shared_used;
static Memory shared_memories[SHARED_ARRAYS];
static const void* shared_sites[SHARED_ARRAYS];
static unsigned shared_count;

const Memory* shared_array(const void* site, const char* name, unsigned element, long long count, bool is_large) {
    for (unsigned i = 0; i < shared_count; i++)
        if (shared_sites[i] == site) return &shared_memories[i];
    const Word bytes = ((Word)count * element + 15) / 16 * 16, most = is_large ? ALL_SHARED_BYTES : SHARED_BYTES;
    if (is_large) shared_used = (shared_used + 1023) / 1024 * 1024;
    if (shared_count == SHARED_ARRAYS || shared_used + bytes > most)
        fail("shared array %.64s: %u arrays of %llu bytes in all, more than the %u of %llu that there are", name,
             shared_count + 1, shared_used + bytes, SHARED_ARRAYS, most);
    Memory& memory = shared_memories[shared_count];
    memory = Memory{shared_bytes + shared_used, count * element, element, new_cells((Word)count), element, -1, name};
    if (!memory.cells) fail("the host's memory does not suffice for a record of accesses");
    shared_sites[shared_count++] = site;
    shared_used += bytes;
    return &memory;
}

unsigned shared_address(const Memory& memory, long long at) {
    if (memory.parameter >= 0) fail("takes the shared address of %s", name_of(memory).text);
    return SHARED_BEGIN + (unsigned)(memory.base + at - shared_bytes);
}

const void* read_by_product(unsigned address, unsigned bytes, bool has_read) {
    const unsigned char* const from = shared_bytes + (address - SHARED_BEGIN);
    for (unsigned i = 0; i < shared_count; i++) {
        const Memory& memory = shared_memories[i];
        const long long at = from - memory.base;
        if (address < SHARED_BEGIN || at < 0 || memory.bytes - at < bytes) continue;
        if (bytes != memory.granule) fail("multiplies elements of %u bytes of %s", bytes, name_of(memory).text);
        Cell& cell = memory.cells[at / memory.granule];
        visit(memory, at, Access::Read, cell);
        const unsigned writer = thread_of(cell.written);
        if (settled[writer] <= cell.fences)
            fail("multiplies %s at index %lld, which thread %u has written with no fence before the barrier",
                 name_of(memory).text, at / memory.element, writer);
        if (has_read) cell.pending -= 1;
        else cell.pending += 1;
        return from;
    }
    fail("multiplies what is at the shared address %u, where there is no array", address);
}

void forget_shared() {
    for (unsigned i = 0; i < shared_count; i++)
        memset((void*)shared_memories[i].cells, 0, shared_memories[i].bytes / shared_memories[i].element * sizeof(Cell));
}

void drop_shared() {
    while (shared_count > 0) free(shared_memories[--shared_count].cells);
    shared_used = 0;
}

}  // namespace emulated
