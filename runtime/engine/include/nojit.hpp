// nojit for C++17: handles that close themselves, arguments made of C++ values, and errors that are thrown. Header only, over nojit.h.
//
//     nojit::bundle bundle("acme-1.0-sm_90.nojit");
//     nojit::kernel add = bundle.kernel("add");
//     add({.stream = stream}, x, y, out, n);                     // C++20; in C++17: nojit::launch where; where.stream = stream;
//     nojit::plan plan = add.prepare({}, x, y, out, n);
//
// A kernel and a plan live as long as their bundle. docs/c-api.md explains the rest.
#ifndef NOJIT_HPP
#define NOJIT_HPP

#include "nojit.h"

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace nojit {

// What a function of nojit.h filled.
class error : public std::runtime_error {
public:
    explicit error(const nj_error &found) : std::runtime_error(word(found)), found_(found) {}

    const nj_error &found() const noexcept { return found_; }
    nj_code code() const noexcept { return found_.code; }

private:
    static std::string word(const nj_error &found)
    {
        std::string text = found.what;
        text += *found.got == 0 ? "" : std::string(", got ") + found.got;
        text += *found.where == 0 ? "" : std::string(" - at ") + found.where;
        return text;
    }

    nj_error found_;
};

namespace detail {

template <typename T> constexpr nj_dtype dtype_of()
{
    using plain = std::remove_cv_t<T>;
    if constexpr (std::is_void_v<plain>) {
        return NJ_DTYPE_NONE;
    } else if constexpr (std::is_same_v<plain, bool>) {
        return NJ_I1;
    } else if constexpr (std::is_same_v<plain, float>) {
        return NJ_FP32;
    } else if constexpr (std::is_same_v<plain, double>) {
        return NJ_FP64;
    } else {
        static_assert(std::is_integral_v<plain>, "say the dtype: nojit::arg::pointer(address, NJ_BF16)");
        constexpr nj_dtype with_sign[] = {NJ_I8, NJ_I16, NJ_I32, NJ_I64}, without[] = {NJ_U8, NJ_U16, NJ_U32, NJ_U64};
        constexpr int place = sizeof(plain) == 1 ? 0 : sizeof(plain) == 2 ? 1 : sizeof(plain) == 4 ? 2 : 3;
        return std::is_signed_v<plain> ? with_sign[place] : without[place];
    }
}

inline void check(nj_code code, const nj_error &found)
{
    if (code != NJ_OK) {
        throw error(found);
    }
}

template <typename T> T *check(T *made, const nj_error &found)
{
    if (made == nullptr) {
        throw error(found);
    }
    return made;
}

} // namespace detail

// One argument of a call, made of a C++ value. Texts, tuples and descriptors are borrowed: they have to live during the call.
class arg {
public:
    arg(std::nullptr_t) noexcept : it_(nj_arg_none()) {}
    arg(bool truth) noexcept : it_(nj_arg_bool(truth)) {}
    arg(double number) noexcept : it_(nj_arg_float(number)) {}
    arg(const char *text) noexcept : it_(nj_arg_text(text)) {}
    arg(const nj_tensor_descriptor &descriptor) noexcept : it_(nj_arg_descriptor(&descriptor)) {}
    arg(const nj_arg &it) noexcept : it_(it) {}
    template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
    arg(T number) noexcept
        : it_(std::is_signed_v<T> ? nj_arg_int(static_cast<std::int64_t>(number)) : nj_arg_uint(static_cast<std::uint64_t>(number)))
    {
    }
    // A pointer to memory of the device.
    template <typename T, std::enable_if_t<!std::is_same_v<std::remove_cv_t<T>, char>, int> = 0>
    arg(T *address) noexcept : it_(nj_arg_pointer(reinterpret_cast<std::uintptr_t>(address), detail::dtype_of<T>()))
    {
    }
    // The same for a CUdeviceptr, or for a dtype that C++ has no type of.
    static arg pointer(std::uint64_t address, nj_dtype dtype) noexcept { return nj_arg_pointer(address, dtype); }
    static arg pointer(const void *address, nj_dtype dtype) noexcept
    {
        return nj_arg_pointer(reinterpret_cast<std::uintptr_t>(address), dtype);
    }
    // A dtype as a constexpr: "bf16".
    static arg dtype(const char *name) noexcept
    {
        nj_arg it = nj_arg_of(NJ_ARG_DTYPE);
        it.text = name;
        return it;
    }

    const nj_arg &get() const noexcept { return it_; }

private:
    nj_arg it_;
};

// A keyword of a call: {"BLOCK", 128}.
struct keyword {
    const char *name;
    arg value;
};

// Where and how a call is launched.
struct launch {
    CUstream_st *stream = nullptr;
    int device = NJ_CURRENT_DEVICE;
    std::vector<std::uint32_t> grid = {}; // empty: the bundle's
    std::vector<keyword> keywords = {};

    nj_launch_config config() const
    {
        if (grid.size() > 3) {
            throw std::invalid_argument("expected a grid of at most 3 dimensions");
        }
        nj_launch_config made = NJ_LAUNCH_CONFIG_INIT;
        made.stream = stream;
        made.device = device;
        made.grid_rank = static_cast<int>(grid.size());
        for (std::size_t i = 0; i < grid.size(); i++) {
            made.grid[i] = grid[i];
        }
        return made;
    }

    std::vector<nj_keyword> named() const
    {
        std::vector<nj_keyword> made;
        for (const keyword &one : keywords) {
            made.push_back({one.name, one.value.get()});
        }
        return made;
    }
};

// A variant on a device, ready to launch without selection.
class plan {
public:
    explicit plan(const nj_plan *it) noexcept : it_(it) {}

    // Launches with pointers to values, as nj_plan_launch takes them.
    void operator()(const void *const *values, CUstream_st *stream, const std::uint32_t *grid = nullptr) const
    {
        nj_error found;
        detail::check(nj_plan_launch(it_, values, grid, stream, &found), found);
    }

    nj_plan_info about() const
    {
        nj_plan_info info = {};
        info.size = sizeof info;
        nj_plan_about(it_, &info);
        return info;
    }

    const nj_plan *get() const noexcept { return it_; }

private:
    const nj_plan *it_;
};

class kernel {
public:
    explicit kernel(nj_kernel *it) noexcept : it_(it) {}

    // Selects the variant that serves the call and enqueues it.
    template <typename... Args> void operator()(const launch &where, const Args &...args) const
    {
        const nj_arg list[] = {arg(args).get()..., nj_arg_none()};
        const std::vector<nj_keyword> named = where.named();
        const nj_launch_config config = where.config();
        nj_error found;
        detail::check(nj_launch(it_, list, sizeof...(args), named.data(), named.size(), &config, &found), found);
    }

    // Selects and loads the variant, and enqueues nothing.
    template <typename... Args> plan prepare(const launch &where, const Args &...args) const
    {
        const nj_arg list[] = {arg(args).get()..., nj_arg_none()};
        const std::vector<nj_keyword> named = where.named();
        const nj_launch_config config = where.config();
        nj_error found;
        return plan(detail::check(nj_prepare(it_, list, sizeof...(args), named.data(), named.size(), &config, &found), found));
    }

    // Loads every variant and puts it on a device.
    void load(int device) const
    {
        nj_error found;
        detail::check(nj_kernel_load(it_, device, &found), found);
    }

    const char *name() const noexcept { return nj_kernel_name(it_); }
    nj_kernel *get() const noexcept { return it_; }

private:
    nj_kernel *it_;
};

// An open bundle; closes itself, and with it its kernels and plans.
class bundle {
public:
    explicit bundle(const std::string &path, const nj_options *options = nullptr)
    {
        nj_error found;
        it_ = detail::check(nj_bundle_open(path.c_str(), options, &found), found);
    }
    // In memory, which has to outlive the bundle.
    bundle(const void *bytes, std::size_t size, const nj_options *options = nullptr)
    {
        nj_error found;
        it_ = detail::check(nj_bundle_open_memory(bytes, size, options, &found), found);
    }
    bundle(bundle &&other) noexcept : it_(std::exchange(other.it_, nullptr)) {}
    bundle &operator=(bundle &&other) noexcept
    {
        std::swap(it_, other.it_);
        return *this;
    }
    bundle(const bundle &) = delete;
    bundle &operator=(const bundle &) = delete;
    ~bundle() { nj_bundle_close(it_); }

    class kernel kernel(const std::string &name) const
    {
        nj_error found;
        return nojit::kernel(detail::check(nj_bundle_kernel(it_, name.c_str(), &found), found));
    }

    nj_bundle_info about() const
    {
        nj_bundle_info info = {};
        info.size = sizeof info;
        nj_bundle_about(it_, &info);
        return info;
    }

    // How well the bundle fits a device; 0 if it does not run there.
    int fit(int device) const
    {
        int fit = 0;
        nj_error found;
        detail::check(nj_bundle_fit(it_, device, &fit, &found), found);
        return fit;
    }

    nj_bundle *get() const noexcept { return it_; }

private:
    nj_bundle *it_;
};

} // namespace nojit

#endif
