// Asynchronous copies to shared memory (cp.async): they take effect as late as they may.

#include <stdlib.h>
#include <string.h>

#include "runtime.hpp"

namespace emulated {

struct Copy {
    const Memory* to;
    const Memory* from;
    long long to_at, from_at;
    unsigned bytes;
    bool inside;
    // The number of its group among those of the thread.
    unsigned group;
};

// A thread's copies that have not taken effect, in their order, and how many groups it has closed.
struct Queue {
    Copy* copies;
    unsigned count, room, closed;
};

static Queue queues[1024];

void begin_copy(const Memory& to, long long to_at, const Memory& from, long long from_at, unsigned bytes, bool inside) {
    if (to.parameter >= 0 || from.parameter < 0) fail("copies asynchronously, but not from global to shared memory");
    access(to, to_at, bytes, Access::Write);
    invalidate(to, to_at, bytes);
    if (inside) access(from, from_at, bytes, Access::Read);
    Queue& queue = queues[state.thread];
    if (queue.count == queue.room) {
        queue.room = queue.room ? 2 * queue.room : 16;
        Copy* const grown = (Copy*)realloc(queue.copies, queue.room * sizeof(Copy));
        if (!grown) fail("the host's memory does not suffice for %u copies", queue.room);
        queue.copies = grown;
    }
    queue.copies[queue.count++] = Copy{&to, &from, to_at, from_at, bytes, inside, queue.closed};
}

void end_group() { queues[state.thread].closed += 1; }

void wait_groups(unsigned but) {
    Queue& queue = queues[state.thread];
    unsigned done = 0;
    for (; done < queue.count && queue.copies[done].group + but < queue.closed; done++) {
        const Copy& copy = queue.copies[done];
        void* const to = access(*copy.to, copy.to_at, copy.bytes, Access::Write);
        if (copy.inside) memcpy(to, access(*copy.from, copy.from_at, copy.bytes, Access::Read), copy.bytes);
        else memset(to, 0, copy.bytes);
    }
    queue.count -= done;
    memmove(queue.copies, queue.copies + done, queue.count * sizeof(Copy));
}

void forget_copies() {
    for (Queue& queue : queues) {
        free(queue.copies);
        queue = Queue();
    }
}

}  // namespace emulated
