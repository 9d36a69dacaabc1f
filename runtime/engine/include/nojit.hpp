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
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
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
        std::string text(nj_error_text(&found, nullptr, 0), ' ');
        nj_error_text(&found, &text[0], text.size() + 1);
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
        return NJ_DTYPE_I1;
    } else if constexpr (std::is_same_v<plain, float>) {
        return NJ_DTYPE_FP32;
    } else if constexpr (std::is_same_v<plain, double>) {
        return NJ_DTYPE_FP64;
    } else {
        static_assert(std::is_integral_v<plain>, "say the dtype: nojit::arg::pointer(address, NJ_DTYPE_BF16)");
        constexpr nj_dtype with_sign[] = {NJ_DTYPE_I8, NJ_DTYPE_I16, NJ_DTYPE_I32, NJ_DTYPE_I64}, without[] = {NJ_DTYPE_U8, NJ_DTYPE_U16, NJ_DTYPE_U32, NJ_DTYPE_U64};
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

// One argument of a call, made of a C++ value. Texts, tuples and descriptors are borrowed: they have to live until the call returns, so
// that none is made of a temporary.
class arg {
public:
    arg(std::nullptr_t) noexcept : it_(nj_arg_none()) {}
    arg(bool truth) noexcept : it_(nj_arg_bool(truth)) {}
    arg(double number) noexcept : it_(nj_arg_float(number)) {}
    arg(const char *text) noexcept : it_(nj_arg_text(text)) {}
    arg(const std::string &text) noexcept : it_(nj_arg_text(text.c_str())) {}
    arg(const std::string &&) = delete;
    arg(const nj_tensor_descriptor &descriptor) noexcept : it_(nj_arg_descriptor(&descriptor)) {}
    arg(const nj_tensor_descriptor &&) = delete;
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
    // A dtype as a constexpr: "bf16". A function as one: "package.module.function".
    static arg dtype(const char *name) noexcept { return nj_arg_dtype(name); }
    static arg function(const char *name) noexcept { return nj_arg_function(name); }
    // A tuple of arguments; and a param that is left to its default.
    static arg tuple(const std::vector<arg> &items) noexcept
    {
        static_assert(sizeof(arg) == sizeof(nj_arg), "arguments are passed to C as they are");
        return nj_arg_tuple(reinterpret_cast<const nj_arg *>(items.data()), items.size());
    }
    static arg tuple(const std::vector<arg> &&) = delete;
    static arg by_default() noexcept { return nj_arg_default(); }

    const nj_arg &get() const noexcept { return it_; }

private:
    nj_arg it_;
};

// A keyword of a call: {"BLOCK", 128}.
struct keyword : nj_keyword {
    keyword(const char *name, const arg &value) noexcept : nj_keyword{name, value.get()} {}
};

static_assert(sizeof(keyword) == sizeof(nj_keyword), "keywords are passed to C as they are");

// The numbers of a grid, one to three; none: the bundle computes them.
class grid {
public:
    grid() noexcept = default;
    grid(std::initializer_list<std::uint32_t> sizes) : rank_(static_cast<int>(sizes.size()))
    {
        if (sizes.size() > 3) {
            throw std::invalid_argument("expected a grid of at most 3 dimensions");
        }
        int place = 0;
        for (std::uint32_t size : sizes) {
            sizes_[place++] = size;
        }
    }

    int rank() const noexcept { return rank_; }
    const std::uint32_t *sizes() const noexcept { return sizes_; }

private:
    int rank_ = 0;
    std::uint32_t sizes_[3] = {1, 1, 1};
};

// Where and how a call is launched.
struct launch {
    nj_stream stream = nullptr;
    int device = NJ_CURRENT_DEVICE;
    nojit::grid grid = {};
    std::vector<keyword> keywords = {};

    nj_launch_setup setup() const noexcept
    {
        return {sizeof(nj_launch_setup), stream, device, grid.rank(), {grid.sizes()[0], grid.sizes()[1], grid.sizes()[2]}, 0};
    }
};

// A variant on a device, ready to launch without selection.
class plan {
public:
    explicit plan(const nj_plan *it) noexcept : it_(it) {}

    // Launches with pointers to values, as nj_plan_launch takes them.
    void operator()(const void *const *values, nj_stream stream, const std::uint32_t *grid = nullptr) const
    {
        nj_error found;
        detail::check(nj_plan_launch(it_, values, grid, stream, &found), found);
    }

    nj_plan_info about() const
    {
        nj_plan_info info = NJ_PLAN_INFO_INIT;
        nj_error found;
        detail::check(nj_plan_about(it_, &info, &found), found);
        return info;
    }

    // What one of the values points to; `number` is below `about().value_count`.
    nj_plan_value_info value(std::size_t number) const
    {
        nj_plan_value_info info = NJ_PLAN_VALUE_INFO_INIT;
        nj_error found;
        detail::check(nj_plan_value(it_, number, &info, &found), found);
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
        const nj_launch_setup setup = where.setup();
        nj_error found;
        detail::check(nj_kernel_launch(it_, list, sizeof...(args), where.keywords.data(), where.keywords.size(), &setup, &found), found);
    }

    // Selects and loads the variant, and enqueues nothing.
    template <typename... Args> plan prepare(const launch &where, const Args &...args) const
    {
        const nj_arg list[] = {arg(args).get()..., nj_arg_none()};
        nj_error found;
        return plan(detail::check(
            nj_kernel_prepare(it_, list, sizeof...(args), where.keywords.data(), where.keywords.size(), where.device, &found), found));
    }

    // Calls `visit` with an nj_reason of each variant: whether it serves the call, and why not. Ends where `visit` throws.
    template <typename Visit, typename... Args> void explain(const launch &where, Visit visit, const Args &...args) const
    {
        struct visitor {
            Visit &visit;
            std::exception_ptr thrown;

            static int call(void *user, const nj_reason *reason) noexcept
            {
                auto *it = static_cast<visitor *>(user);
                try {
                    it->visit(*reason);
                } catch (...) {
                    it->thrown = std::current_exception();
                }
                return it->thrown != nullptr;
            }
        } told{visit, nullptr};
        const nj_arg list[] = {arg(args).get()..., nj_arg_none()};
        nj_error found;
        detail::check(nj_kernel_explain(it_, list, sizeof...(args), where.keywords.data(), where.keywords.size(), where.device, visitor::call,
                                        &told, &found),
                      found);
        if (told.thrown != nullptr) {
            std::rethrow_exception(told.thrown);
        }
    }

    // Loads every variant and puts it on a device.
    void load(int device) const
    {
        nj_error found;
        detail::check(nj_kernel_load(it_, device, &found), found);
    }

    nj_kernel_info about() const
    {
        nj_kernel_info info = NJ_KERNEL_INFO_INIT;
        nj_error found;
        detail::check(nj_kernel_about(it_, &info, &found), found);
        return info;
    }

    std::vector<nj_param_info> params() const
    {
        std::vector<nj_param_info> all(about().param_count, NJ_PARAM_INFO_INIT);
        nj_error found;
        for (std::size_t i = 0; i < all.size(); i++) {
            detail::check(nj_kernel_param(it_, i, &all[i], &found), found);
        }
        return all;
    }

    // The constexprs and options of a config; `number` is below `about().config_count`.
    nj_config_info config(std::size_t number) const
    {
        nj_config_info info = NJ_CONFIG_INFO_INIT;
        nj_error found;
        detail::check(nj_kernel_config(it_, number, &info, &found), found);
        return info;
    }

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

    std::vector<std::string> kernel_names() const
    {
        std::vector<std::string> names;
        for (std::size_t i = 0; const char *name = nj_bundle_kernel_name(it_, i); i++) {
            names.emplace_back(name);
        }
        return names;
    }

    // The bytes of an attachment, which live as long as the bundle.
    std::string_view attachment(const std::string &name) const
    {
        std::size_t size = 0;
        nj_error found;
        const void *content = detail::check(nj_bundle_attachment(it_, name.c_str(), &size, &found), found);
        return {static_cast<const char *>(content), size};
    }

    nj_bundle_info about() const
    {
        nj_bundle_info info = NJ_BUNDLE_INFO_INIT;
        nj_error found;
        detail::check(nj_bundle_about(it_, &info, &found), found);
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
