// What a unit and the emulator's runtime know of each other. Needs no header: a unit compiles without any.
#pragma once

namespace emulated {

typedef unsigned long long Word;

// Bytes that a launch may touch, as the caller gives them.
struct Region {
    unsigned char* base;
    Word bytes;
};

// What the caller asks for.
struct Request {
    unsigned grid[3];
    unsigned block;
    const Region* regions;
    Word count;
    // What the parameters behind the regions are.
    const long long* numbers;
    Word number_count;
    // The blocks that run, of all: from the first one on, up to the last one without it.
    Word first, last;
};

// What is known of a pointer parameter from its type.
struct Parameter {
    unsigned element;
    bool written;
};

struct Cell;

// An array that threads access: a parameter, or a shared array.
struct Memory {
    unsigned char* base;
    long long bytes;
    // Bytes of an element.
    unsigned element;
    // The record of accesses, a cell for so many bytes; none where nothing is ever written.
    Cell* cells;
    unsigned granule;
    // The number of the parameter, or -1: then the array is shared and has a name.
    int parameter;
    const char* name;
};

enum class Access : unsigned char { Read, Write, Atomic };

// The address of so many bytes, `at` bytes behind the array's beginning, for an access that is within bounds, aligned
// and in no race. Does not return otherwise.
void* access(const Memory& memory, long long at, unsigned bytes, Access kind);

// Copies so many bytes, or zeros where `inside` is false, when the current thread waits for the group of the copy. Until then the copy's
// target has no elements: reading them ends the launch, and so does a write that no barrier orders with what others read there.
void begin_copy(const Memory& to, long long to_at, const Memory& from, long long from_at, unsigned bytes, bool inside);

// Closes the current thread's group of copies.
void end_group();

// Waits for the current thread's groups but for the latest ones.
void wait_groups(unsigned but);

// The shared array of the current block that is declared at `site`; `count` elements of `element` bytes. A large one begins at a multiple
// of 1024 bytes.
const Memory* shared_array(const void* site, const char* name, unsigned element, long long count, bool is_large);

// The address of a byte of a shared array among all that a block shares.
unsigned shared_address(const Memory& memory, long long at);

// Orders what the current thread has written to shared memory before what products by warpgroups read behind the next barrier.
void fence_writes();

// A thread's sums, and whether they may be read.
struct SumsOf {
    float* values;
    // Products that are not waited for.
    unsigned pending;
    // How many fences the warp had done when they were written.
    unsigned fences;
};

// How a warpgroup multiplies: two matrices in shared memory as descriptors say, with 64 rows, so many columns and so many steps of elements
// of so many bytes; a turned one has its rows, or columns, side by side.
struct Product {
    const char* name;
    Word left, right;
    unsigned columns, depth, bytes;
    bool is_left_turned, is_right_turned;
    float (*element)(const void*);
    SumsOf* sums;
};

// Begins a product of which the current thread has sums; the others of its warp come, too.
void begin_product(Product& product);

// What precedes the first product, and products behind other writes to the sums.
void fence_products();

// Closes the warp's group of products, and waits for its groups but for the latest ones.
void end_products();
void wait_for_products(unsigned but);

// The current warp's fences of products so far.
unsigned fences_of_products();

// Waits for all threads of the block at the barrier of this line.
void barrier(unsigned line);

// The current block has come to a number at which blocks meet: if it is the last one that does, it sees from here on what the others wrote before
// they came.
void meet_blocks(const void* number, bool is_last);

// Ends an operation of a warp: called once, when all lanes of the mask have arrived, with what each one brought (null
// where a lane does not take part).
typedef void Combine(void** operands, unsigned mask);

// Takes part in an operation of the lanes of a warp that `mask` names: waits until all have arrived with the same
// `combine` and mask, of which the last one calls `combine`.
void meet(const char* what, Combine* combine, unsigned mask, void* operand);

// The current thread's number in its warp.
unsigned lane();

// Orders the memory accesses of the current warp's lanes before and after: part of ending `__syncwarp`.
void order_warp(unsigned mask);

// Whether this pass over all blocks is the one of the phase of this number. Phases are separated by barriers of the grid: a launch passes
// over all blocks once for each of them, so that all blocks have ended a phase before any begins the next one. What a thread keeps for
// itself from one to the next does not last.
bool in_phase(unsigned number);

// Ends the launch with this message; never returns.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Runs the blocks of a launch: each thread does `call(memories)`. Returns the message of the first error, or null.
const char* run(const char* function, unsigned threads, const Request& request, const Parameter* parameters,
                unsigned count, void (*call)(const Memory*));

struct Index3 {
    unsigned x, y, z;
};

}  // namespace emulated

extern emulated::Index3 threadIdx, blockIdx, blockDim, gridDim;
