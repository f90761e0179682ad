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

// A function whose parameters are all pointers: the parameter i becomes the memory i.
template <class... T, void (*function)(Pointer<T>...)>
struct Kernel<void (*)(Pointer<T>...), function> {
    template <int... I>
    static void with(const Memory* memories, Indices<I...>) {
        (void)memories;
        function(Pointer<T>(memories + I, 0)...);
    }

    static void call(const Memory* memories) {
        with(memories, typename Count<sizeof...(T)>::Type());
    }

    static const char* launch(const char* name, unsigned threads, const Request& request) {
        const Parameter parameters[] = {{sizeof(T), !Plain<T>::constant}..., {0, false}};
        return run(name, threads, request, parameters, sizeof...(T), call);
    }
};

}  // namespace emulated
