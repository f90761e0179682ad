// Warpgroup matrix products (wgmma): descriptors, and accumulators that are written as late as they may be. A warp has the rows of its
// own, and what the warps of a warpgroup do is compared at barriers.

#include <stdlib.h>
#include <string.h>

#include "runtime.hpp"

namespace emulated {

// A product of a warp, the sums of its lanes, and the number of its group.
struct Begun {
    Product what;
    SumsOf* sums[32];
    unsigned group;
};

// A warp's products that have not taken effect, in their order; how many groups it has closed and fences it has done; and what it did,
// as a number that differs where that does.
struct Products {
    Begun* begun;
    unsigned count, room, closed, fences;
    Word done;
};

static Products warps[32];

static Products& own() { return warps[state.thread / 32]; }

static void note(Word what) { own().done = (own().done ^ what) * 1099511628211ull + 1; }

// PTX ISA 9.2, 9.7.15.5.1.2, "Matrix Descriptor Format" and "Strides": the address of an element by its line (row or column) and its step.
// Lengths of 16 bytes are units. A turned matrix has units of lines.
static unsigned place(Word descriptor, bool is_turned, unsigned bytes, unsigned line, unsigned step) {
    const unsigned start = (unsigned)(descriptor & 0x3fff) << 4, leading = (unsigned)(descriptor >> 16 & 0x3fff) << 4;
    const unsigned stride = (unsigned)(descriptor >> 32 & 0x3fff) << 4, mode = (unsigned)(descriptor >> 62);
    const unsigned across = 16 / bytes;
    // Units that lie side by side: 1 without swizzling, else 8, 4 or 2.
    const unsigned wide = mode == 0 ? 1 : 16u >> mode;
    unsigned at = start;
    if (!is_turned) {
        const unsigned unit = step / across;
        at += line % 8 * 16 * wide + line / 8 * stride + unit * (mode == 0 ? leading : 16) + step % across * bytes;
    } else {
        const unsigned unit = line / across;
        at += line % across * bytes + step % 8 * 16 * wide;
        at += mode == 0 ? unit * stride + step / 8 * leading
                        : unit % wide * 16 + unit / wide * leading + step / 8 * stride;
    }
    // Units change places by the bits of the address above those of a line of 128 bytes.
    return at ^ (at >> 7 & (wide - 1)) << 4;
}

static void check(const Product& p) {
    if (state.request.block % 128 != 0) fail("%s in a block that is not made of warpgroups", p.name);
    if (p.columns % 8 != 0 || p.columns > 256) fail("%s has %u columns", p.name, p.columns);
    const Word both[2] = {p.left, p.right};
    for (const Word descriptor : both) {
        if (descriptor & 0x3ff1c000c000c000ull) fail("%s: bits of a descriptor are set that mean nothing", p.name);
        if (descriptor >> 49 & 7) fail("%s: a descriptor has an offset of its pattern, which is not emulated", p.name);
    }
}

// Visits all elements of a product that a warp reads, and gets them where they are asked for.
static void read_all(const Product& p, bool has_read, float* left, float* right) {
    const unsigned first = state.thread / 32 % 4 * 16;
    for (unsigned line = 0; line < 16; line++)
        for (unsigned k = 0; k < p.depth; k++) {
            const unsigned at = place(p.left, p.is_left_turned, p.bytes, first + line, k);
            const void* const from = read_by_product(at, p.bytes, has_read);
            if (has_read) left[line * p.depth + k] = p.element(from);
        }
    for (unsigned line = 0; line < p.columns; line++)
        for (unsigned k = 0; k < p.depth; k++) {
            const unsigned at = place(p.right, p.is_right_turned, p.bytes, line, k);
            const void* const from = read_by_product(at, p.bytes, has_read);
            if (has_read) right[line * p.depth + k] = p.element(from);
        }
}

static void combine_product(void** operands, unsigned mask) {
    if (mask != 0xffffffffu) fail("multiplies matrices in a warp of fewer than 32 threads");
    Products& products = own();
    const Product& p = *static_cast<Product*>(operands[0]);
    check(p);
    if (products.count == products.room) {
        products.room = products.room ? 2 * products.room : 16;
        Begun* const grown = (Begun*)realloc(products.begun, products.room * sizeof(Begun));
        if (!grown) fail("the host's memory does not suffice for %u products", products.room);
        products.begun = grown;
    }
    Begun& begun = products.begun[products.count++];
    begun.what = p;
    begun.group = products.closed;
    for (unsigned lane = 0; lane < 32; lane++) {
        const Product& other = *static_cast<Product*>(operands[lane]);
        if (other.left != p.left || other.right != p.right) fail("%s: lanes have different descriptors", p.name);
        SumsOf& sums = *other.sums;
        if (sums.fences == products.fences) fail("%s: sums were written with no fence since", p.name);
        sums.pending += 1;
        begun.sums[lane] = &sums;
    }
    read_all(p, false, nullptr, nullptr);
    note(p.left);
    note(p.right);
}

void begin_product(Product& product) { meet(product.name, combine_product, 0xffffffffu, &product); }

// PTX ISA 9.2, 9.7.15.5.1.1, accumulators. Products are added in f64 and rounded once, as a device's order is not specified.
static void finish(const Begun& begun) {
    static float left[16 * 16], right[256 * 16];
    const Product& p = begun.what;
    read_all(p, true, left, right);
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < p.columns / 2; i++) {
            const unsigned row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            double sum = begun.sums[lane]->values[i];
            for (unsigned k = 0; k < p.depth; k++)
                sum += (double)left[row * p.depth + k] * (double)right[column * p.depth + k];
            begun.sums[lane]->values[i] = (float)sum;
        }
        begun.sums[lane]->pending -= 1;
    }
}

static void combine_fence(void**, unsigned) {
    own().fences += 1;
    note(1);
}

void fence_products() { meet("begin_products", combine_fence, 0xffffffffu, nullptr); }

static void combine_end(void**, unsigned) {
    own().closed += 1;
    note(2);
}

void end_products() { meet("end_products", combine_end, 0xffffffffu, nullptr); }

static void combine_wait(void** operands, unsigned) {
    Products& products = own();
    const unsigned but = *static_cast<unsigned*>(operands[0]);
    unsigned done = 0;
    for (; done < products.count && products.begun[done].group + but < products.closed; done++)
        finish(products.begun[done]);
    products.count -= done;
    memmove((void*)products.begun, products.begun + done, products.count * sizeof(Begun));
    note(3 + but);
}

void wait_for_products(unsigned but) { meet("wait_products", combine_wait, 0xffffffffu, &but); }

unsigned fences_of_products() { return own().fences; }

bool are_warpgroups_alike() {
    for (unsigned warp = 0; warp < state.request.block / 32; warp++) {
        if (warps[warp].done == warps[warp / 4 * 4].done) continue;
        record("block %s, warp %u: the warps of a warpgroup multiply different matrices", block_name(state.block), warp);
        return false;
    }
    return true;
}

void forget_products() {
    for (Products& products : warps) {
        free(products.begun);
        products = Products();
    }
}

}  // namespace emulated
