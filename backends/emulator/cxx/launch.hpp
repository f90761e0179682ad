// From a generated function's type to a launch of it.
#pragma once

namespace emulated {

template <int... I>
struct Indices {};
template <int n, int... I>
struct Count : Count<n - 1, n - 1, I...> {};
template <int... I>
struct Count<0, I...> {
    typedef Indices<I...> Type;
};

template <class F, F function>
struct Kernel;

// What a parameter becomes: a pointer the memory of its number, anything else the number behind the memories.
template <class T>
struct Passed {
    enum { pointers = 0, element = 0, written = 0 };
    static T of(const Memory*, const long long* numbers, int, int place) { return numbers[place]; }
};
template <class T>
struct Passed<Pointer<T>> {
    enum { pointers = 1, element = sizeof(T), written = !Plain<T>::constant };
    static Pointer<T> of(const Memory* memories, const long long*, int place, int) {
        return Pointer<T>(memories + place, 0);
    }
};

template <class... T>
struct Pointers {
    enum { count = 0 };
};
template <class T, class... Rest>
struct Pointers<T, Rest...> {
    enum { count = Passed<T>::pointers + Pointers<Rest...>::count };
};

// A function whose parameters are pointers, then numbers.
template <class... T, void (*function)(T...)>
struct Kernel<void (*)(T...), function> {
    enum { pointers = Pointers<T...>::count };

    // Of the launch that runs: a unit has one at a time.
    static const long long*& numbers() {
        static const long long* of_launch;
        return of_launch;
    }

    template <int... I>
    static void with(const Memory* memories, Indices<I...>) {
        (void)memories;
        function(Passed<T>::of(memories, numbers(), I, I - pointers)...);
    }

    static void call(const Memory* memories) {
        with(memories, typename Count<sizeof...(T)>::Type());
    }

    static const char* launch(const char* name, unsigned threads, const Request& request) {
        if (request.number_count != sizeof...(T) - pointers)
            return "it takes another number of numbers";
        numbers() = request.numbers;
        const Parameter parameters[] = {{Passed<T>::element, Passed<T>::written != 0}..., {0, false}};
        return run(name, threads, request, parameters, pointers, call);
    }
};

}  // namespace emulated
