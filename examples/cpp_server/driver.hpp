// The part of the CUDA driver API that the server needs, found in libcuda.so.1 at run time: building takes no CUDA toolkit.
// A program that has one includes cuda.h instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <vector>

using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st *;
using CUstream = struct CUstream_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;

class driver {
public:
    driver() : library_(dlopen(path(), RTLD_NOW | RTLD_LOCAL))
    {
        if (library_ == nullptr) {
            throw std::runtime_error("expected libcuda.so.1, which comes with a CUDA driver");
        }
        call<int(unsigned)>("cuInit", 0u);
    }

    // Makes the primary context of a device current.
    void use(int ordinal)
    {
        int device = 0;
        CUcontext context = nullptr;
        call<int(int *, int)>("cuDeviceGet", &device, ordinal);
        call<int(CUcontext *, int)>("cuDevicePrimaryCtxRetain", &context, device);
        call<int(CUcontext)>("cuCtxSetCurrent", context);
    }

    // Calls a function by its exported name; throws if it fails.
    template <typename Signature, typename... Args> void call(const char *name, Args... args)
    {
        auto *function = reinterpret_cast<Signature *>(dlsym(library_, name));
        if (function == nullptr) {
            throw std::runtime_error(std::string("the driver has no ") + name);
        }
        if (int code = function(args...); code != 0) {
            throw std::runtime_error(std::string(name) + " failed with CUresult " + std::to_string(code));
        }
    }

private:
    static const char *path()
    {
        // the variable that libnojit looks at, too: tests bring a driver of their own
        const char *given = std::getenv("NOJIT_LIBCUDA");
        return given != nullptr && *given != 0 ? given : "libcuda.so.1";
    }

    void *library_;
};

// Memory of the device, freed with the object.
class buffer {
public:
    buffer(driver &cuda, std::size_t bytes) : cuda_(&cuda), bytes_(bytes)
    {
        cuda.call<int(CUdeviceptr *, std::size_t)>("cuMemAlloc_v2", &address_, bytes);
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        try {
            cuda_->call<int(CUdeviceptr)>("cuMemFree_v2", address_);
        } catch (const std::exception &) {
            // at the end of the program there may be no context any more
        }
    }

    void write(const std::vector<std::uint16_t> &values)
    {
        cuda_->call<int(CUdeviceptr, const void *, std::size_t)>("cuMemcpyHtoD_v2", address_, values.data(), 2 * values.size());
    }

    std::vector<std::uint16_t> read() const
    {
        std::vector<std::uint16_t> values(bytes_ / 2);
        cuda_->call<int(void *, CUdeviceptr, std::size_t)>("cuMemcpyDtoH_v2", values.data(), address_, bytes_);
        return values;
    }

    CUdeviceptr address() const { return address_; }

private:
    driver *cuda_;
    std::size_t bytes_;
    CUdeviceptr address_ = 0;
};

class stream {
public:
    explicit stream(driver &cuda) : cuda_(cuda)
    {
        enum { NON_BLOCKING = 1 };
        cuda.call<int(CUstream *, unsigned)>("cuStreamCreate", &it_, static_cast<unsigned>(NON_BLOCKING));
    }

    void wait() { cuda_.call<int(CUstream)>("cuStreamSynchronize", it_); }

    // Captures what `enqueue` enqueues, and returns a graph that replays it.
    template <typename Enqueue> CUgraphExec capture(Enqueue enqueue)
    {
        enum { THREAD_LOCAL = 1 };
        CUgraph graph = nullptr;
        CUgraphExec made = nullptr;
        cuda_.call<int(CUstream, int)>("cuStreamBeginCapture_v2", it_, static_cast<int>(THREAD_LOCAL));
        enqueue();
        cuda_.call<int(CUstream, CUgraph *)>("cuStreamEndCapture", it_, &graph);
        cuda_.call<int(CUgraphExec *, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags", &made, graph, 0ull);
        cuda_.call<int(CUgraph)>("cuGraphDestroy", graph);
        return made;
    }

    void replay(CUgraphExec graph) { cuda_.call<int(CUgraphExec, CUstream)>("cuGraphLaunch", graph, it_); }

    CUstream get() const { return it_; }

private:
    driver &cuda_;
    CUstream it_ = nullptr;
};
