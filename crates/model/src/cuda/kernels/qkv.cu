// Between the projection of queries, keys and values and attention: biases, the norms of queries and keys
// where the family has them, and the rotary turn. One warp does one head of one row at a time.

#define HALF (HEAD / 2)
#define PAIRS ((HALF + WARP - 1) / WARP)
#define QKV_WARPS 4

// A head's numbers as its warp holds them: pair p of lane l is (i, i + HALF) with i = l + 32 p.
struct Head {
    float left[PAIRS], right[PAIRS];
};

__device__ __forceinline__ Head load_head(const bf16* from, const bf16* bias) {
    Head head;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = threadIdx.x % WARP + p * WARP;
        bool inside = i < HALF;
        head.left[p] = inside ? widen(from[i]) + (bias ? widen(bias[i]) : 0.0f) : 0.0f;
        head.right[p] = inside ? widen(from[i + HALF]) + (bias ? widen(bias[i + HALF]) : 0.0f) : 0.0f;
    }
    return head;
}

__device__ __forceinline__ void store_head(bf16* to, const Head& head) {
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = threadIdx.x % WARP + p * WARP;
        if (i < HALF) {
            to[i] = narrow(head.left[p]);
            to[i + HALF] = narrow(head.right[p]);
        }
    }
}

// Turns by the angles of a position, or back by them (sign -1). `angles` is [cosines | sines].
__device__ __forceinline__ void turn(Head& head, const float* angles, float sign) {
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = threadIdx.x % WARP + p * WARP;
        if (i < HALF) {
            float cosine = angles[i], sine = angles[HALF + i] * sign;
            float a = head.left[p], b = head.right[p];
            head.left[p] = a * cosine - b * sine;
            head.right[p] = b * cosine + a * sine;
        }
    }
}

// x r w with the weights of this head's norm; returns r.
__device__ __forceinline__ float norm_head(Head& head, const bf16* weight, float epsilon) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) sum += head.left[p] * head.left[p] + head.right[p] * head.right[p];
    float r = 1.0f / sqrtf(warp_sum(sum) / HEAD + epsilon);
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = threadIdx.x % WARP + p * WARP;
        if (i < HALF) {
            head.left[p] *= r * widen(weight[i]);
            head.right[p] *= r * widen(weight[i + HALF]);
        }
    }
    return r;
}

// Rows are [queries | keys | values]; `bias`, `q_norm` and `k_norm` may be absent. With norms `inverse`
// [rows, queries + keys] keeps r. `raw` may be `out`. Where there is a cache, keys and values also go to
// row cache_rows[row] of it. Grid: rows.
extern "C" __global__ void __launch_bounds__(QKV_WARPS * WARP)
prepare_qkv(const bf16* raw, const bf16* bias, const bf16* q_norm, const bf16* k_norm, float epsilon,
            const int* positions, const float* angles, int queries, int keys, bf16* out, float* inverse,
            const int* cache_rows, bf16* cache) {
    long long row = blockIdx.x, width = (long long)(queries + 2 * keys) * HEAD;
    const float* turned = angles + (long long)positions[row] * HEAD;
    for (int head = threadIdx.x / WARP; head < queries + 2 * keys; head += QKV_WARPS) {
        Head values = load_head(raw + row * width + head * HEAD, bias ? bias + head * HEAD : nullptr);
        const bf16* weight = head < queries ? q_norm : k_norm;
        if (head < queries + keys) {
            if (weight) {
                float r = norm_head(values, weight, epsilon);
                if (inverse && threadIdx.x % WARP == 0) inverse[row * (queries + keys) + head] = r;
            }
            turn(values, turned, 1.0f);
        }
        store_head(out + row * width + head * HEAD, values);
        if (cache && head >= queries)
            store_head(cache + ((long long)cache_rows[row] * 2 * keys + head - queries) * HEAD, values);
    }
}

// Turns the derivative of what prepare_qkv made into that of its input, in place. With norms, block b
// leaves the derivatives of their weights in partials[b]: [query norm | key norm]. Any grid.
extern "C" __global__ void __launch_bounds__(QKV_WARPS * WARP)
prepare_qkv_backward(const bf16* raw, const bf16* bias, const bf16* q_norm, const bf16* k_norm,
                     const float* inverse, const int* positions, const float* angles, int rows, int queries,
                     int keys, bf16* d_qkv, float* partials) {
    __shared__ float shared_sums[QKV_WARPS][2 * HEAD];
    long long width = (long long)(queries + 2 * keys) * HEAD;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    Head sums[2] = {};
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* turned = angles + (long long)positions[row] * HEAD;
        for (int head = warp; head < queries + keys; head += QKV_WARPS) {
            bf16* place = d_qkv + row * width + head * HEAD;
            Head d = load_head(place, nullptr);
            turn(d, turned, -1.0f);
            bool key = head >= queries;
            const bf16* weight = key ? k_norm : q_norm;
            if (weight) {
                Head x = load_head(raw + row * width + head * HEAD, bias ? bias + head * HEAD : nullptr);
                float r = inverse[row * (queries + keys) + head], pull = 0;
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                    int i = lane + p * WARP;
                    if (i < HALF) {
                        float left = d.left[p] * x.left[p] * r, right = d.right[p] * x.right[p] * r;
                        sums[0].left[p] += key ? 0.0f : left;
                        sums[0].right[p] += key ? 0.0f : right;
                        sums[1].left[p] += key ? left : 0.0f;
                        sums[1].right[p] += key ? right : 0.0f;
                        d.left[p] *= widen(weight[i]);
                        d.right[p] *= widen(weight[i + HALF]);
                        pull += d.left[p] * x.left[p] + d.right[p] * x.right[p];
                    }
                }
                pull = warp_sum(pull) / HEAD * r * r * r;
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                    d.left[p] = d.left[p] * r - x.left[p] * pull;
                    d.right[p] = d.right[p] * r - x.right[p] * pull;
                }
            }
            store_head(place, d);
        }
    }
    if (!partials) return;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = lane + p * WARP;
        if (i < HALF) {
            for (int kind = 0; kind < 2; kind++) {
                shared_sums[warp][kind * HEAD + i] = sums[kind].left[p];
                shared_sums[warp][kind * HEAD + HALF + i] = sums[kind].right[p];
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * HEAD; i += QKV_WARPS * WARP) {
        float sum = 0;
        for (int w = 0; w < QKV_WARPS; w++) sum += shared_sums[w][i];
        partials[(long long)blockIdx.x * 2 * HEAD + i] = sum;
    }
}
