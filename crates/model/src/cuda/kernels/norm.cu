// Root mean square norm. x and d_x are the residual stream in f32; normed rows are bf16.

#define NORM_THREADS 128
#define NORM_GROUPS ((HIDDEN + NORM_THREADS * 8 - 1) / (NORM_THREADS * 8))

// y = x r w, r = 1 / sqrt(mean(x^2) + epsilon). Row i reads row index[i] of x where there is an index.
// Grid: rows.
extern "C" __global__ void __launch_bounds__(NORM_THREADS)
rms_norm(const float* x, const int* index, const bf16* weight, float epsilon, bf16* y, float* inverse) {
    long long row = blockIdx.x, from = index ? index[row] : row;
    float values[NORM_GROUPS][8];
    float sum = 0;
#pragma unroll
    for (int group = 0; group < NORM_GROUPS; group++) {
        int column = (group * NORM_THREADS + (int)threadIdx.x) * 8;
        if (column < HIDDEN) {
            load8(x + from * HIDDEN + column, values[group]);
#pragma unroll
            for (int i = 0; i < 8; i++) sum += values[group][i] * values[group][i];
        }
    }
    float r = 1.0f / sqrtf(block_sum(sum) / HIDDEN + epsilon);
    if (threadIdx.x == 0) inverse[row] = r;
#pragma unroll
    for (int group = 0; group < NORM_GROUPS; group++) {
        int column = (group * NORM_THREADS + (int)threadIdx.x) * 8;
        if (column < HIDDEN) {
            float w[8];
            load8(weight + column, w);
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] *= values[group][i] * r;
            store8(y + row * HIDDEN + column, w);
        }
    }
}

// d_x += r (g - x r^2 mean(g x)) with g = d_y w, and its rounded copy for the products that follow.
// Block b sums d_y x r of its rows into partials[b]; column_sums adds them up. Any grid.
template <typename D>
__device__ __forceinline__ void rms_norm_backward_of(const D* d_y, const float* x, const int* index,
                                                     const bf16* weight, const float* inverse, int rows,
                                                     float* d_x, bf16* d_x_narrow, float* partials) {
    float sums[NORM_GROUPS][8] = {};
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        long long place = index ? index[row] : row;
        float r = inverse[row], g[NORM_GROUPS][8], values[NORM_GROUPS][8];
        float pull = 0;
#pragma unroll
        for (int group = 0; group < NORM_GROUPS; group++) {
            int column = (group * NORM_THREADS + (int)threadIdx.x) * 8;
            if (column < HIDDEN) {
                float w[8];
                load8(d_y + row * HIDDEN + column, g[group]);
                load8(x + place * HIDDEN + column, values[group]);
                load8(weight + column, w);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    sums[group][i] += g[group][i] * values[group][i] * r;
                    g[group][i] *= w[i];
                    pull += g[group][i] * values[group][i];
                }
            }
        }
        pull = block_sum(pull) / HIDDEN * r * r * r;
#pragma unroll
        for (int group = 0; group < NORM_GROUPS; group++) {
            int column = (group * NORM_THREADS + (int)threadIdx.x) * 8;
            if (column < HIDDEN) {
                float d[8];
                load8(d_x + place * HIDDEN + column, d);
#pragma unroll
                for (int i = 0; i < 8; i++) d[i] += g[group][i] * r - values[group][i] * pull;
                store8(d_x + place * HIDDEN + column, d);
                store8(d_x_narrow + place * HIDDEN + column, d);
            }
        }
    }
    if (!partials) return;
#pragma unroll
    for (int group = 0; group < NORM_GROUPS; group++) {
        int column = (group * NORM_THREADS + (int)threadIdx.x) * 8;
        if (column < HIDDEN) store8(partials + (long long)blockIdx.x * HIDDEN + column, sums[group]);
    }
}

extern "C" __global__ void __launch_bounds__(NORM_THREADS)
rms_norm_backward(const bf16* d_y, const float* x, const int* index, const bf16* weight, const float* inverse,
                  int rows, float* d_x, bf16* d_x_narrow, float* partials) {
    rms_norm_backward_of(d_y, x, index, weight, inverse, rows, d_x, d_x_narrow, partials);
}

extern "C" __global__ void __launch_bounds__(NORM_THREADS)
rms_norm_backward_wide(const float* d_y, const float* x, const int* index, const bf16* weight,
                       const float* inverse, int rows, float* d_x, bf16* d_x_narrow, float* partials) {
    rms_norm_backward_of(d_y, x, index, weight, inverse, rows, d_x, d_x_narrow, partials);
}
