// Fibers: stacks that take turns on one thread of the machine.
//
// On x86-64 a switch saves the registers that a callee keeps; elsewhere ucontext does, with a system call each time.
#pragma once

#include <sys/mman.h>

#if !defined(__x86_64__) || !defined(__linux__)
#define EMULATED_UCONTEXT
#endif

#ifdef EMULATED_UCONTEXT
#include <ucontext.h>
#endif

namespace emulated {

// Overflows are not noticed here: the compiler refuses a function whose variables take more than a quarter of it.
static const Word STACK = 256 * 1024;

// So many stacks, of which the machine gives only what is touched. Null: there is no memory.
inline char* new_stacks(unsigned count) {
    void* const stacks =
        mmap(nullptr, count * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return stacks == MAP_FAILED ? nullptr : (char*)stacks;
}

inline void free_stacks(char* stacks, unsigned count) { munmap(stacks, count * STACK); }

#ifdef EMULATED_UCONTEXT

struct Context {
    ucontext_t inner;
};

inline void switch_context(Context& from, Context& to) { swapcontext(&from.inner, &to.inner); }

inline void prepare(Context& context, char* stack, void (*start)()) {
    getcontext(&context.inner);
    context.inner.uc_stack.ss_sp = stack;
    context.inner.uc_stack.ss_size = STACK;
    context.inner.uc_link = nullptr;
    makecontext(&context.inner, start, 0);
}

#else

struct Context {
    void* top;
};

extern "C" void emulated_switch(void** from, void* to);
asm(R"(
    .text
    .globl emulated_switch
    .hidden emulated_switch
    .type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulated_switch, .-emulated_switch
)");

inline void switch_context(Context& from, Context& to) { emulated_switch(&from.top, to.top); }

inline void prepare(Context& context, char* stack, void (*start)()) {
    // Six registers, the address that `ret` goes to, and a slot which makes the stack as a call leaves it.
    void** const top = (void**)(stack + STACK) - 8;
    for (int i = 0; i < 8; i++) top[i] = nullptr;
    top[6] = (void*)start;
    context.top = top;
}

#endif

}  // namespace emulated
