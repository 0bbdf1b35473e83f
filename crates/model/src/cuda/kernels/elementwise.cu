// Small kernels over rows and columns: embedding, gated activation, sums, copies, the optimiser.

// out[row] = weight[token[row]]. Grid: rows.
extern "C" __global__ void __launch_bounds__(128) embed(const int* tokens, const bf16* weight, float* out) {
    long long row = blockIdx.x, token = tokens[row];
    for (int column = threadIdx.x * 8; column < HIDDEN; column += blockDim.x * 8) {
        float values[8];
        load8(weight + token * HIDDEN + column, values);
        store8(out + row * HIDDEN + column, values);
    }
}

// gradient[token] += sum of d_out over the rows with that token, in row order. `order` lists rows by
// token; block b does rows order[starts[b]..starts[b + 1]], all of one token. Grid: distinct tokens.
extern "C" __global__ void __launch_bounds__(128)
embed_backward(const int* tokens, const int* order, const int* starts, const float* d_out, float* gradient) {
    int first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    long long token = tokens[order[first]];
    for (int column = threadIdx.x * 8; column < HIDDEN; column += blockDim.x * 8) {
        float sum[8], values[8];
        load8(gradient + token * HIDDEN + column, sum);
        for (int at = first; at < end; at++) {
            load8(d_out + (long long)order[at] * HIDDEN + column, values);
#pragma unroll
            for (int i = 0; i < 8; i++) sum[i] += values[i];
        }
        store8(gradient + token * HIDDEN + column, sum);
    }
}

// out = silu(gate) up; rows of gate_up are [gate | up], `width` each. Grid covers rows * width / 8 threads.
extern "C" __global__ void __launch_bounds__(256)
swiglu(const bf16* gate_up, int rows, int width, bf16* out) {
    long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (at >= (long long)rows * width) return;
    long long row = at / width, column = at % width;
    float gate[8], up[8];
    load8(gate_up + row * 2 * width + column, gate);
    load8(gate_up + row * 2 * width + width + column, up);
#pragma unroll
    for (int i = 0; i < 8; i++) up[i] *= gate[i] / (1.0f + expf(-gate[i]));
    store8(out + at, up);
}

// Overwrites gate_up with its derivative.
extern "C" __global__ void __launch_bounds__(256)
swiglu_backward(const bf16* d_out, int rows, int width, bf16* gate_up) {
    long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (at >= (long long)rows * width) return;
    long long row = at / width, column = at % width;
    float gate[8], up[8], d[8];
    load8(gate_up + row * 2 * width + column, gate);
    load8(gate_up + row * 2 * width + width + column, up);
    load8(d_out + at, d);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float s = 1.0f / (1.0f + expf(-gate[i])), g = gate[i];
        gate[i] = d[i] * up[i] * s * (1.0f + g * (1.0f - s));
        up[i] = d[i] * g * s;
    }
    store8(gate_up + row * 2 * width + column, gate);
    store8(gate_up + row * 2 * width + width + column, up);
}

// y += bias, row by row. Grid covers rows * width / 8 threads.
template <typename T>
__device__ __forceinline__ void add_bias_to(const bf16* bias, int rows, int width, T* y) {
    long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (at >= (long long)rows * width) return;
    float values[8], b[8];
    load8(y + at, values);
    load8(bias + at % width, b);
#pragma unroll
    for (int i = 0; i < 8; i++) values[i] += b[i];
    store8(y + at, values);
}

extern "C" __global__ void __launch_bounds__(256) add_bias(const bf16* bias, int rows, int width, bf16* y) {
    add_bias_to(bias, rows, width, y);
}

extern "C" __global__ void __launch_bounds__(256)
add_bias_wide(const bf16* bias, int rows, int width, float* y) {
    add_bias_to(bias, rows, width, y);
}

// to[column] += sum over rows, in a fixed order. Block (32, 8): 32 columns. Grid: columns / 32, rounded up.
template <typename T>
__device__ __forceinline__ void column_sums_of(const T* from, int rows, int width, int stride, float* to,
                                               float (*parts)[32]) {
    int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < width) {
        for (long long row = threadIdx.y; row < rows; row += 8) {
            if constexpr (sizeof(T) == 2) sum += widen(from[row * stride + column]);
            else sum += from[row * stride + column];
        }
    }
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        sum = 0;
        for (int i = 0; i < 8; i++) sum += parts[i][threadIdx.x];
        to[column] += sum;
    }
}

extern "C" __global__ void __launch_bounds__(256)
column_sums(const float* from, int rows, int width, float* to) {
    __shared__ float parts[8][32];
    column_sums_of(from, rows, width, width, to, parts);
}

extern "C" __global__ void __launch_bounds__(256)
column_sums_narrow(const bf16* from, int rows, int width, float* to) {
    __shared__ float parts[8][32];
    column_sums_of(from, rows, width, width, to, parts);
}

// The same over rows `stride` apart.
extern "C" __global__ void __launch_bounds__(256)
column_sums_strided(const float* from, int rows, int width, int stride, float* to) {
    __shared__ float parts[8][32];
    column_sums_of(from, rows, width, stride, to, parts);
}

// to[i] = from[index[i]]. Grid: rows.
extern "C" __global__ void __launch_bounds__(128) gather_rows(const bf16* from, const int* index, bf16* to) {
    long long row = blockIdx.x, source = index[row];
    for (int column = threadIdx.x * 8; column < HIDDEN; column += blockDim.x * 8)
        *reinterpret_cast<uint4*>(to + row * HIDDEN + column) =
            *reinterpret_cast<const uint4*>(from + source * HIDDEN + column);
}

// to[index[i]] += from[i] for i in order; several may name one row. Grid: HIDDEN / 128, rounded up.
extern "C" __global__ void __launch_bounds__(128)
scatter_rows(const float* from, const int* index, int rows, float* to) {
    int column = blockIdx.x * 128 + threadIdx.x;
    if (column >= HIDDEN) return;
    for (long long row = 0; row < rows; row++) to[(long long)index[row] * HIDDEN + column] += from[row * HIDDEN + column];
}

// to[r] = mean over rows ranges[2r]..ranges[2r + 1]. Grid: ranges.
extern "C" __global__ void __launch_bounds__(128) mean_rows(const bf16* from, const int* ranges, float* to) {
    long long first = ranges[2 * blockIdx.x], end = ranges[2 * blockIdx.x + 1];
    for (int column = threadIdx.x; column < HIDDEN; column += blockDim.x) {
        float sum = 0;
        for (long long row = first; row < end; row++) sum += widen(from[row * HIDDEN + column]);
        to[(long long)blockIdx.x * HIDDEN + column] = sum / (float)(end > first ? end - first : 1);
    }
}

extern "C" __global__ void __launch_bounds__(256) scale(float* values, long long count, float factor) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] *= factor;
}

// One step of SplitMix64, as the dropout on the CPU's side takes it.
__device__ __forceinline__ unsigned long long mixed(unsigned long long counter) {
    unsigned long long z = counter + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// to = mask x scale, or to += mask x scale: dropout of the entries of one module's input by coordinates
// (key, sequence, layer, module, position, column), the same entries as on the CPU. Grid: rows.
extern "C" __global__ void __launch_bounds__(128)
drop_entries(const bf16* x, int width, long long key, long long threshold, float scale, int layer, int module,
             const unsigned long long* identities, const int* positions, int add, bf16* to) {
    long long row = blockIdx.x;
    unsigned long long state = (unsigned long long)key;
    state = mixed(state ^ mixed(identities[row]));
    state = mixed(state ^ mixed((unsigned long long)layer));
    state = mixed(state ^ mixed((unsigned long long)module));
    state = mixed(state ^ mixed((unsigned long long)positions[row]));
    for (int column = threadIdx.x * 8; column < width; column += blockDim.x * 8) {
        float values[8], before[8];
        load8(x + row * width + column, values);
        if (add) load8(to + row * width + column, before);
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            unsigned long long bits = mixed(state + (unsigned long long)(column / 2 + pair));
            values[2 * pair] *= (bits & 0xffffffffull) < (unsigned long long)threshold ? 0.0f : scale;
            values[2 * pair + 1] *= (bits >> 32) < (unsigned long long)threshold ? 0.0f : scale;
        }
        if (add) {
#pragma unroll
            for (int i = 0; i < 8; i++) values[i] += before[i];
        }
        store8(to + row * width + column, values);
    }
}

// partials[b] = the squares of block b's share, in f64. Any grid.
extern "C" __global__ void __launch_bounds__(256)
square_sums(const float* values, long long count, double* partials) {
    double sum = 0;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (long long)gridDim.x * blockDim.x)
        sum += (double)values[at] * (double)values[at];
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// One AdamW update of a run of weights; `keep` is 1 - rate * decay, the rest as on the CPU's side.
extern "C" __global__ void __launch_bounds__(256)
adamw(const float* gradient, long long count, float clip, float beta1, float beta2, float rest1, float rest2, float rate,
      float correction, float epsilon, float keep, float* weights, float* first, float* second, bf16* copy) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    float g = gradient[at] * clip;
    float m = beta1 * first[at] + rest1 * g;
    float v = beta2 * second[at] + rest2 * g * g;
    float weight = weights[at] * keep - rate * m / (sqrtf(v) * correction + epsilon);
    first[at] = m;
    second[at] = v;
    weights[at] = weight;
    copy[at] = narrow(weight);
}
