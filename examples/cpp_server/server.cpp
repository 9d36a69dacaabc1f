// Serves one layer, attention and the product behind it, without Python: nojit selects each variant by the sizes of the call, as the
// bundle's tuning says, and the layer is replayed as a CUDA graph.
//
//     server BUNDLE [--no-check]
//
// --no-check leaves out the comparison with the processor's results.
#include "driver.hpp"

#include <nojit.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

namespace {

struct sizes {
    int batch, heads, tokens, width; // of queries, keys and values: [batch, heads, tokens, width]

    std::int64_t elements() const { return std::int64_t{1} * batch * heads * tokens * width; }
    int rows() const { return batch * tokens; }
    int columns() const { return heads * width; }
};

// -- numbers --

std::uint16_t to_bf16(float number)
{
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(std::uint16_t number)
{
    std::uint32_t bits = std::uint32_t{number} << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

std::vector<std::uint16_t> random_numbers(std::int64_t count, unsigned seed)
{
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<std::uint16_t> numbers(static_cast<std::size_t>(count));
    for (std::uint16_t &number : numbers) {
        number = to_bf16(normal(generator));
    }
    return numbers;
}

// -- the layer --

nojit::arg bf16(const buffer &memory)
{
    return nojit::arg::pointer(memory.address(), NJ_DTYPE_BF16);
}

// One layer: out = attention(q, k, v) @ weight. Queries, keys and values are stored as [batch, tokens, heads, width].
class layer {
public:
    layer(driver &cuda, const nojit::bundle &bundle, const sizes &of)
        : q(cuda, 2 * of.elements()), k(cuda, 2 * of.elements()), v(cuda, 2 * of.elements()), mixed(cuda, 2 * of.elements()),
          weight(cuda, std::size_t{2} * of.columns() * of.columns()), out(cuda, 2 * of.elements()), of_(of),
          attention_(bundle.kernel("flash_attention_fwd")), matmul_(bundle.kernel("bmm"))
    {
    }

    void enqueue(nj_stream on) const
    {
        const std::int64_t head = of_.width, token = head * of_.heads, sequence = token * of_.tokens;
        const int block = of_.width <= 64 ? 64 : 128;
        nojit::launch_setup setup;
        setup.stream = on;
        setup.keywords = {{"MASK", "causal"}, {"BLOCK_D", block}, {"BLOCK_DV", block}};
        attention_(setup, bf16(q), bf16(k), bf16(v), bf16(mixed), nullptr, 1.0 / std::sqrt(double(of_.width)), 0, 0, of_.batch, of_.heads, 1,
                   of_.tokens, of_.tokens, of_.width, of_.width, sequence, head, token, sequence, head, token, sequence, head, token,
                   sequence, head, token);
        const int rows = of_.rows(), columns = of_.columns();
        const std::int64_t none = 0, by_row = columns, whole = by_row * rows;
        setup.keywords = {{"PRECISION", "ieee"}};
        matmul_(setup, bf16(mixed), bf16(weight), bf16(out), bf16(out), nojit::arg::pointer(out.address(), NJ_DTYPE_FP32), 1, rows, columns, columns,
                1, columns, 0, 1.0, 0.0, whole, by_row, 1, none, by_row, 1, whole, by_row, 1, whole, by_row, 1);
    }

    buffer q, k, v, mixed, weight, out;

private:
    sizes of_;
    nojit::kernel attention_, matmul_;
};

// -- the same on the processor --

// Attention of one query of one head, with the keys up to it.
std::vector<double> attend(const sizes &of, const std::vector<std::uint16_t> &q, const std::vector<std::uint16_t> &k,
                           const std::vector<std::uint16_t> &v, int batch, int head, int token)
{
    auto at = [&](int other) { return ((std::size_t(batch) * of.tokens + other) * of.heads + head) * of.width; };
    std::vector<double> weights(token + 1), mixed(of.width, 0.0);
    double sum = 0.0, largest = -1e300;
    for (int other = 0; other <= token; other++) {
        double score = 0.0;
        for (int i = 0; i < of.width; i++) {
            score += double(from_bf16(q[at(token) + i])) * from_bf16(k[at(other) + i]);
        }
        weights[other] = score / std::sqrt(double(of.width));
        largest = std::max(largest, weights[other]);
    }
    for (double &weight : weights) {
        weight = std::exp(weight - largest);
        sum += weight;
    }
    for (int other = 0; other <= token; other++) {
        for (int i = 0; i < of.width; i++) {
            mixed[i] += weights[other] / sum * from_bf16(v[at(other) + i]);
        }
    }
    return mixed;
}

// The largest error of a few elements, relative to the largest of them.
double error_of(const sizes &of, const std::vector<std::uint16_t> &q, const std::vector<std::uint16_t> &k, const std::vector<std::uint16_t> &v,
                const std::vector<std::uint16_t> &weight, const std::vector<std::uint16_t> &out)
{
    double worst = 0.0, largest = 1e-9;
    for (int token : {0, of.tokens / 2, of.tokens - 1}) {
        std::vector<double> row;
        for (int head = 0; head < of.heads; head++) {
            std::vector<double> mixed = attend(of, q, k, v, of.batch - 1, head, token);
            row.insert(row.end(), mixed.begin(), mixed.end());
        }
        for (int column = 0; column < of.columns(); column += 37) {
            double expected = 0.0;
            for (int i = 0; i < of.columns(); i++) {
                expected += row[i] * from_bf16(weight[std::size_t(i) * of.columns() + column]);
            }
            std::size_t place = (std::size_t(of.batch - 1) * of.tokens + token) * of.columns() + column;
            worst = std::max(worst, std::fabs(expected - from_bf16(out[place])));
            largest = std::max(largest, std::fabs(expected));
        }
    }
    return worst / largest;
}

// -- the program --

double milliseconds(std::chrono::steady_clock::time_point since)
{
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

void serve(driver &cuda, const nojit::bundle &bundle, const sizes &of, bool checks)
{
    layer one(cuda, bundle, of);
    stream on(cuda);
    const auto q = random_numbers(of.elements(), 1), k = random_numbers(of.elements(), 2), v = random_numbers(of.elements(), 3);
    const auto weight = random_numbers(std::int64_t{1} * of.columns() * of.columns(), 4);
    one.q.write(q), one.k.write(k), one.v.write(v), one.weight.write(weight);

    // the first launch loads the variants, which no capture allows
    auto began = std::chrono::steady_clock::now();
    one.enqueue(on.get());
    on.wait();
    double first_ms = milliseconds(began);

    CUgraphExec graph = on.capture([&] { one.enqueue(on.get()); });
    const int replays = 20;
    began = std::chrono::steady_clock::now();
    for (int i = 0; i < replays; i++) {
        on.replay(graph);
    }
    on.wait();
    std::printf("batch %d, %d heads of %d, %d tokens: first %.2f ms, replayed %.3f ms", of.batch, of.heads, of.width, of.tokens, first_ms,
                milliseconds(began) / replays);
    cuda.call<int(CUgraphExec)>("cuGraphExecDestroy", graph);
    if (checks) {
        double worst = error_of(of, q, k, v, weight, one.out.read());
        std::printf(", error %.4f", worst);
        if (!(worst < 0.02)) {
            throw std::runtime_error("expected the layer's results to be those of the processor");
        }
    }
    std::printf("\n");
}

} // namespace

int main(int count, char **words)
{
    if (count < 2) {
        std::fprintf(stderr, "usage: server BUNDLE [--no-check]\n");
        return 2;
    }
    try {
        driver cuda;
        cuda.use(0);
        nojit::bundle bundle(words[1]);
        if (bundle.fit(0) == 0) {
            throw std::runtime_error(std::string("the device does not run ") + bundle.about().image_arch);
        }
        bool checks = count < 3 || std::strcmp(words[2], "--no-check") != 0;
        for (const sizes &of : {sizes{1, 16, 1024, 128}, sizes{8, 16, 128, 128}, sizes{1, 16, 333, 64}}) {
            serve(cuda, bundle, of, checks);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
