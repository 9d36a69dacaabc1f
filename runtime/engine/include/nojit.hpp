// nojit for C++17: handles that close themselves, arguments made of C++ values, and errors that are thrown. Header only, over nojit.h.
//
//     nojit::bundle bundle("acme-1.0-sm_90.nojit");
//     nojit::kernel add = bundle.kernel("add");
//     nojit::launch_setup setup;
//     setup.stream = stream;
//     add(setup, x, y, out, n);
//     nojit::plan plan = add.prepare({}, x, y, out, n);
//     plan.launch(stream, x, y, out, n);
//
// The comments in nojit.h hold here, too. Functions throw nojit::error where those of nojit.h return a code or NULL; those that are noexcept
// cannot fail. A bundle closes itself, and can be moved but not copied; after a move, only assign to it or destroy it. Kernels, plans and
// everything that a function returns are views of the bundle, as cheap to copy as a pointer (a plan: as a shared_ptr), and end with it.
#ifndef NOJIT_HPP
#define NOJIT_HPP

#include "nojit.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace nojit {

// Why a function failed: what a function of nojit.h filled, or what this header found.
class error : public std::runtime_error {
public:
    explicit error(const nj_error &found) : std::runtime_error(text_of(found)), found_(found) {}

    [[nodiscard]] const nj_error &found() const noexcept { return found_; }
    [[nodiscard]] nj_code code() const noexcept { return found_.code; }

private:
    static std::string text_of(const nj_error &found)
    {
        std::string text(nj_error_text(&found, nullptr, 0), ' ');
        nj_error_text(&found, &text[0], text.size() + 1);
        return text;
    }

    nj_error found_;
};

namespace detail {

template <typename T> constexpr nj_dtype builtin_dtype() noexcept
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
        static_assert(std::is_integral_v<plain>, "specialize nojit::dtype_of, or say the dtype: nojit::arg::pointer(address, NJ_DTYPE_BF16)");
        constexpr nj_dtype with_sign[] = {NJ_DTYPE_I8, NJ_DTYPE_I16, NJ_DTYPE_I32, NJ_DTYPE_I64};
        constexpr nj_dtype without[] = {NJ_DTYPE_U8, NJ_DTYPE_U16, NJ_DTYPE_U32, NJ_DTYPE_U64};
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

template <typename T> [[nodiscard]] T *check(T *made, const nj_error &found)
{
    if (made == nullptr) {
        throw error(found);
    }
    return made;
}

[[noreturn]] inline void refuse(const std::string &what, const std::string &got, const std::string &where)
{
    nj_error found{};
    found.code = NJ_ERROR_ARGUMENT;
    found.argument = -1;
    what.copy(found.what, sizeof found.what - 1);
    got.copy(found.got, sizeof found.got - 1);
    where.copy(found.where, sizeof found.where - 1);
    throw error(found);
}

} // namespace detail

// The dtype of what a T * points to. Specialize it for a type of another library:
//
//     template <> struct nojit::dtype_of<__half> { static constexpr nj_dtype value = NJ_DTYPE_FP16; };
template <typename T> struct dtype_of {
    static constexpr nj_dtype value = detail::builtin_dtype<T>();
};

// One argument of a call, made of a C++ value. Texts, tuples and descriptors are borrowed until the call returns: none is made of a
// temporary.
class arg {
public:
    arg(std::nullptr_t) noexcept : it_(nj_arg_none()) {}
    arg(bool truth) noexcept : it_(nj_arg_bool(truth)) {}
    arg(double number) noexcept : it_(nj_arg_float(number)) {}
    // A char * could be a string, or bytes on the device: say arg::text(string), or arg::pointer(address, NJ_DTYPE_I8).
    arg(const char *) = delete;
    arg(char *) = delete;
    arg(const volatile char *) = delete;
    arg(volatile char *) = delete;
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
    arg(T *address) noexcept : it_(nj_arg_pointer(reinterpret_cast<std::uintptr_t>(address), dtype_of<std::remove_cv_t<T>>::value))
    {
    }
    // The same for a CUdeviceptr, or for a dtype that C++ has no type of.
    static arg pointer(std::uint64_t address, nj_dtype dtype) noexcept { return nj_arg_pointer(address, dtype); }
    static arg pointer(const void *address, nj_dtype dtype) noexcept
    {
        return nj_arg_pointer(reinterpret_cast<std::uintptr_t>(address), dtype);
    }
    // A string as a constexpr. A dtype as one: "bf16". A function as one: "package.module.function".
    static arg text(const char *text) noexcept { return nj_arg_text(text); }
    static arg dtype(const char *name) noexcept { return nj_arg_dtype(name); }
    static arg function(const char *name) noexcept { return nj_arg_function(name); }
    // A tuple of arguments; and a param that is left to its default.
    static arg tuple(const arg *items, std::size_t count) noexcept
    {
        static_assert(std::is_standard_layout_v<arg> && sizeof(arg) == sizeof(nj_arg), "arguments are passed to C as they are");
        return nj_arg_tuple(reinterpret_cast<const nj_arg *>(items), count);
    }
    static arg tuple(const std::vector<arg> &items) noexcept { return tuple(items.data(), items.size()); }
    static arg tuple(const std::vector<arg> &&) = delete;
    static arg by_default() noexcept { return nj_arg_default(); }

    [[nodiscard]] const nj_arg &get() const noexcept { return it_; }

private:
    nj_arg it_;
};

// A keyword of a call: {"BLOCK", 128}.
struct keyword : nj_keyword {
    keyword(const char *key, const arg &given) noexcept : nj_keyword{key, given.get()} {}
    // no conversion makes a text of 0 or nullptr
    template <typename Text, std::enable_if_t<std::is_same_v<std::decay_t<Text>, const char *> || std::is_same_v<std::decay_t<Text>, char *>, int> = 0>
    keyword(const char *key, Text &&text) noexcept : nj_keyword{key, nj_arg_text(text)}
    {
    }
};

static_assert(sizeof(keyword) == sizeof(nj_keyword), "keywords are passed to C as they are");

// The numbers of a grid, one to three; none: the bundle computes them.
class grid {
public:
    constexpr grid() noexcept = default;
    constexpr grid(std::uint32_t x, std::uint32_t y = 1, std::uint32_t z = 1) noexcept : given_(true), sizes_{x, y, z} {}

    // As nojit.h takes them: NULL for none.
    [[nodiscard]] const std::uint32_t *get() const noexcept { return given_ ? sizes_ : nullptr; }

private:
    bool given_ = false;
    std::uint32_t sizes_[3] = {1, 1, 1};
};

// Where and how a call is launched.
struct launch_setup {
    nj_stream stream = nullptr;
    int device = NJ_CURRENT_DEVICE;
    nojit::grid grid = {};
    std::vector<keyword> keywords = {};
};

// What selects a variant beside the arguments. A launch_setup has a stream and a grid too, which only launches use.
struct selection_setup {
    int device = NJ_CURRENT_DEVICE;
    std::vector<keyword> keywords = {};
};

namespace detail {

// What a C++ value is as one of a plan's values.
struct passed {
    std::size_t bytes;
    nj_arg_kind kind; // of a class only the size is known: its kind is not looked at
    nj_dtype dtype;   // of what a pointer points to
    bool is_class = false;

    template <typename T> static constexpr passed of() noexcept
    {
        if constexpr (std::is_null_pointer_v<T>) {
            return {0, NJ_ARG_NONE, NJ_DTYPE_NONE};
        } else if constexpr (std::is_pointer_v<T>) {
            static_assert(!std::is_same_v<std::remove_cv_t<std::remove_pointer_t<T>>, char>,
                          "a char * could be a string, or bytes on the device: pass a signed char *, an unsigned char * or a void *");
            return {sizeof(T), NJ_ARG_POINTER, dtype_of<std::remove_cv_t<std::remove_pointer_t<T>>>::value};
        } else if constexpr (std::is_same_v<T, bool>) {
            return {sizeof(T), NJ_ARG_BOOL, NJ_DTYPE_NONE};
        } else if constexpr (std::is_floating_point_v<T>) {
            return {sizeof(T), NJ_ARG_FLOAT, NJ_DTYPE_NONE};
        } else if constexpr (std::is_integral_v<T>) {
            return {sizeof(T), NJ_ARG_INT, NJ_DTYPE_NONE};
        } else if constexpr (std::is_same_v<T, nj_tensor_descriptor>) {
            return {sizeof(T), NJ_ARG_DESCRIPTOR, NJ_DTYPE_NONE};
        } else {
            static_assert(!std::is_array_v<T>, "expected a value or a pointer to memory of the device, not an array of the host");
            return {sizeof(T), NJ_ARG_NONE, NJ_DTYPE_NONE, true};
        }
    }

    // Integers are addresses and the bits of 16-bit floats, too. A void * points to any dtype.
    bool fits(const nj_plan_value_info &value) const noexcept
    {
        if (value.kind == NJ_ARG_NONE || value.bytes != bytes) {
            return value.kind == NJ_ARG_NONE;
        }
        switch (kind) {
        case NJ_ARG_INT:
            return value.kind == NJ_ARG_INT || value.kind == NJ_ARG_UINT || value.kind == NJ_ARG_POINTER ||
                   (value.kind == NJ_ARG_FLOAT && bytes == 2);
        case NJ_ARG_POINTER:
            return value.kind == kind && (dtype == value.dtype || dtype == NJ_DTYPE_NONE || value.dtype == NJ_DTYPE_NONE);
        default: return is_class || value.kind == kind;
        }
    }
};

// The arguments of a call and its keywords, as nojit.h takes them.
template <std::size_t Count> struct call {
    nj_arg args[Count + 1]; // no array is empty
    nj_call it;

    template <typename... Args> explicit call(const std::vector<keyword> &keywords, const Args &...values)
        : args{arg(values).get()..., nj_arg_none()}, it{args, Count, keywords.data(), keywords.size()}
    {
    }
    call(const call &) = delete;
};

} // namespace detail

// A variant on a device, ready to launch without selection.
class plan {
public:
    // Asks what values the plan takes, once: its copies share the answer.
    explicit plan(const nj_plan *it) : it_(it), values_(values_of(it)) {}

    // Launches with pointers to values, as nj_plan_launch takes them. Checks neither how many there are nor their types.
    void launch_pointers(nj_stream stream, const void *const *values, const nojit::grid &size = {}) const
    {
        nj_error found;
        detail::check(nj_plan_launch(it_, values, size.get(), stream, &found), found);
    }

    // Launches with values: one for each of values(), of its size and kind.
    template <typename... Values> void launch(nj_stream stream, const Values &...values) const { launch(stream, nojit::grid(), values...); }
    template <typename... Values> void launch(nj_stream stream, const nojit::grid &size, const Values &...values) const
    {
        const void *const pointers[] = {static_cast<const void *>(&values)..., nullptr};
        static constexpr detail::passed given[] = {detail::passed::of<Values>()..., detail::passed::of<std::nullptr_t>()};
        if (values_->size() != sizeof...(values)) {
            detail::refuse("expected " + std::to_string(values_->size()) + " values", std::to_string(sizeof...(values)), place());
        }
        for (std::size_t i = 0; i < sizeof...(values); i++) {
            if (const nj_plan_value_info &value = (*values_)[i]; !given[i].fits(value)) {
                detail::refuse(std::string("expected a value of type ") + value.type, "another type of " + std::to_string(given[i].bytes) + " bytes",
                               place() + " argument " + value.name);
            }
        }
        launch_pointers(stream, pointers, size);
    }

    [[nodiscard]] nj_plan_info about() const
    {
        nj_plan_info info = NJ_PLAN_INFO_INIT;
        nj_error found;
        detail::check(nj_plan_about(it_, &info, &found), found);
        return info;
    }

    // What each of the values is.
    [[nodiscard]] const std::vector<nj_plan_value_info> &values() const noexcept { return *values_; }

    [[nodiscard]] const nj_plan *get() const noexcept { return it_; }

private:
    // Names the plan in errors, as nj_error.where names a kernel.
    [[nodiscard]] std::string place() const { return std::string("kernel ") + about().symbol; }

    using value_list = std::shared_ptr<const std::vector<nj_plan_value_info>>;

    static value_list values_of(const nj_plan *it)
    {
        nj_error found;
        nj_plan_info info = NJ_PLAN_INFO_INIT;
        detail::check(nj_plan_about(it, &info, &found), found);
        std::vector<nj_plan_value_info> all(info.value_count, NJ_PLAN_VALUE_INFO_INIT);
        for (std::size_t i = 0; i < all.size(); i++) {
            detail::check(nj_plan_value(it, i, &all[i], &found), found);
        }
        return std::make_shared<const std::vector<nj_plan_value_info>>(std::move(all));
    }

    const nj_plan *it_;
    value_list values_;
};

class kernel {
public:
    explicit kernel(nj_kernel *it) noexcept : it_(it) {}

    // Selects the variant that serves the call and enqueues it.
    template <typename... Args> void operator()(const launch_setup &setup, const Args &...args) const
    {
        const detail::call<sizeof...(args)> request(setup.keywords, args...);
        const nj_launch_setup given = {sizeof(nj_launch_setup), setup.stream, setup.grid.get(), setup.device, 0};
        nj_error found;
        detail::check(nj_kernel_launch(it_, &request.it, &given, &found), found);
    }

    // Selects and loads the variant, and enqueues nothing.
    template <typename... Args> [[nodiscard]] plan prepare(const selection_setup &setup, const Args &...args) const
    {
        const detail::call<sizeof...(args)> request(setup.keywords, args...);
        nj_error found;
        return plan(detail::check(nj_kernel_prepare(it_, &request.it, setup.device, &found), found));
    }

    // Calls `visit` with an nj_reason of each variant: whether it serves the call, and why not. Ends where `visit` throws.
    template <typename Visit, typename... Args> void explain(const selection_setup &setup, Visit visit, const Args &...args) const
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
        const detail::call<sizeof...(args)> request(setup.keywords, args...);
        nj_error found;
        detail::check(nj_kernel_explain(it_, &request.it, setup.device, visitor::call, &told, &found), found);
        if (told.thrown != nullptr) {
            std::rethrow_exception(told.thrown);
        }
    }

    // Loads every variant and puts it on a device.
    void load(int device = NJ_CURRENT_DEVICE) const
    {
        nj_error found;
        detail::check(nj_kernel_load(it_, device, &found), found);
    }

    [[nodiscard]] nj_kernel_info about() const
    {
        nj_kernel_info info = NJ_KERNEL_INFO_INIT;
        nj_error found;
        detail::check(nj_kernel_about(it_, &info, &found), found);
        return info;
    }

    [[nodiscard]] std::vector<nj_param_info> params() const
    {
        std::vector<nj_param_info> all(about().param_count, NJ_PARAM_INFO_INIT);
        nj_error found;
        for (std::size_t i = 0; i < all.size(); i++) {
            detail::check(nj_kernel_param(it_, i, &all[i], &found), found);
        }
        return all;
    }

    // The constexprs and options of each config, the preferred one first.
    [[nodiscard]] std::vector<nj_config_info> configs() const
    {
        std::vector<nj_config_info> all(about().config_count, NJ_CONFIG_INFO_INIT);
        nj_error found;
        for (std::size_t i = 0; i < all.size(); i++) {
            detail::check(nj_kernel_config(it_, i, &all[i], &found), found);
        }
        return all;
    }

    [[nodiscard]] nj_kernel *get() const noexcept { return it_; }

private:
    nj_kernel *it_;
};

// An open bundle.
class bundle {
public:
    explicit bundle(const std::string &path, const nj_options *options = nullptr)
    {
        nj_error found;
        it_.reset(detail::check(nj_bundle_open(path.c_str(), options, &found), found));
    }
    // Opens a bundle in memory, which has to outlive it.
    [[nodiscard]] static bundle from_memory(const void *bytes, std::size_t size, const nj_options *options = nullptr)
    {
        nj_error found;
        return bundle(detail::check(nj_bundle_open_memory(bytes, size, options, &found), found));
    }

    [[nodiscard]] nojit::kernel kernel(std::string_view name) const
    {
        nj_error found;
        return nojit::kernel(detail::check(nj_bundle_kernel(get(), std::string(name).c_str(), &found), found));
    }

    [[nodiscard]] std::vector<std::string_view> kernel_names() const { return names(nj_bundle_kernel_name); }
    [[nodiscard]] std::vector<std::string_view> attachment_names() const { return names(nj_bundle_attachment_name); }

    // The bytes of an attachment.
    [[nodiscard]] std::string_view attachment(std::string_view name) const
    {
        std::size_t size = 0;
        nj_error found;
        const void *content = detail::check(nj_bundle_attachment(get(), std::string(name).c_str(), &size, &found), found);
        return {static_cast<const char *>(content), size};
    }

    [[nodiscard]] nj_bundle_info about() const
    {
        nj_bundle_info info = NJ_BUNDLE_INFO_INIT;
        nj_error found;
        detail::check(nj_bundle_about(get(), &info, &found), found);
        return info;
    }

    // How well the bundle fits a device; 0 if it does not run there.
    [[nodiscard]] int fit(int device = NJ_CURRENT_DEVICE) const
    {
        int fit = 0;
        nj_error found;
        detail::check(nj_bundle_fit(get(), device, &fit, &found), found);
        return fit;
    }

    [[nodiscard]] nj_bundle *get() const noexcept { return it_.get(); }

private:
    struct closer {
        void operator()(nj_bundle *it) const noexcept { nj_bundle_close(it); }
    };

    explicit bundle(nj_bundle *it) noexcept : it_(it) {}

    std::vector<std::string_view> names(const char *(*name_of)(const nj_bundle *, std::size_t)) const
    {
        std::vector<std::string_view> all;
        for (std::size_t i = 0; const char *name = name_of(get(), i); i++) {
            all.emplace_back(name);
        }
        return all;
    }

    std::unique_ptr<nj_bundle, closer> it_;
};

} // namespace nojit

#endif
