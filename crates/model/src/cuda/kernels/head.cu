// What stands on the last layer: log-probabilities, entropies, divergences, a critic's value. A row of
// logits is `stride` numbers apart from the next. Each block of 512 threads does one row.

#define HEAD_THREADS 512

// statistics[row] = {ln sum e^z, ln p_target, entropy}. Grid: rows.
extern "C" __global__ void __launch_bounds__(HEAD_THREADS)
row_statistics(const float* logits, long long stride, int vocabulary, const int* targets, float* statistics) {
    __shared__ float mosts[HEAD_THREADS / WARP];
    const float* row = logits + blockIdx.x * stride;
    float most = -INFINITY;
    for (int at = threadIdx.x; at < vocabulary; at += HEAD_THREADS) most = fmaxf(most, row[at]);
    most = warp_max(most);
    if (threadIdx.x % WARP == 0) mosts[threadIdx.x / WARP] = most;
    __syncthreads();
    for (int i = 0; i < HEAD_THREADS / WARP; i++) most = fmaxf(most, mosts[i]);
    // Entropy from shifted logits, so that no large numbers cancel.
    float sum = 0, product = 0;
    for (int at = threadIdx.x; at < vocabulary; at += HEAD_THREADS) {
        float z = row[at] - most, e = expf(z);
        sum += e;
        product += e * z;
    }
    sum = block_sum(sum);
    product = block_sum(product);
    if (threadIdx.x == 0) {
        float log = logf(sum), *to = statistics + 3 * (long long)blockIdx.x;
        to[0] = most + log;
        to[1] = row[targets[blockIdx.x]] - most - log;
        to[2] = log - product / sum;
    }
}

// d z_j = d_logprob (1[j = target] - p_j) - d_entropy p_j (ln p_j + H), as bf16. `derivatives` [rows, 2].
// Grid: rows.
extern "C" __global__ void __launch_bounds__(HEAD_THREADS)
row_backward(const float* logits, long long stride, int vocabulary, const int* targets, const float* statistics,
             const float* derivatives, bf16* d_logits) {
    long long index = blockIdx.x;
    const float* row = logits + index * stride;
    bf16* to = d_logits + index * stride;
    float log_sum = statistics[3 * index], entropy = statistics[3 * index + 2];
    float d_logprob = derivatives[2 * index], d_entropy = derivatives[2 * index + 1];
    int target = targets[index];
    for (int at = threadIdx.x; at < vocabulary; at += HEAD_THREADS) {
        float logprob = row[at] - log_sum;
        float d = -expf(logprob) * (d_logprob + d_entropy * (logprob + entropy));
        to[at] = narrow(at == target ? d + d_logprob : d);
    }
}

// KL[p || q] of two rows of logits with known ln sum e^z. Grid: rows.
extern "C" __global__ void __launch_bounds__(HEAD_THREADS)
row_divergence(const float* first, const float* second, long long stride, int vocabulary, const float* log_sums,
               float* divergences) {
    long long index = blockIdx.x;
    float a = log_sums[2 * index], b = log_sums[2 * index + 1], sum = 0;
    for (int at = threadIdx.x; at < vocabulary; at += HEAD_THREADS) {
        float p = first[index * stride + at] - a;
        sum += expf(p) * (p - (second[index * stride + at] - b));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) divergences[index] = sum;
}

// d first_j = d p_j (ln p_j - ln q_j - KL), d second_j = d (q_j - p_j), as bf16; `derivatives` is
// [rows, 2]: KL and d. Grid: rows.
extern "C" __global__ void __launch_bounds__(HEAD_THREADS)
row_divergence_backward(const float* first, const float* second, long long stride, int vocabulary,
                        const float* log_sums, const float* derivatives, bf16* d_first, bf16* d_second) {
    long long index = blockIdx.x;
    float a = log_sums[2 * index], b = log_sums[2 * index + 1];
    float divergence = derivatives[2 * index], d = derivatives[2 * index + 1];
    for (int at = threadIdx.x; at < vocabulary; at += HEAD_THREADS) {
        float log_p = first[index * stride + at] - a, log_q = second[index * stride + at] - b, p = expf(log_p);
        d_first[index * stride + at] = narrow(d * p * (log_p - log_q - divergence));
        d_second[index * stride + at] = narrow(d * (expf(log_q) - p));
    }
}

// values[row] = normed . weight + bias; one warp a row. `weight` is [HIDDEN | bias], in f32. Grid covers
// rows warps.
extern "C" __global__ void __launch_bounds__(128)
value_head(const bf16* normed, const float* weight, int rows, float* values) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    float sum = 0;
    for (int i = threadIdx.x % WARP; i < HIDDEN; i += WARP) sum += widen(normed[(long long)row * HIDDEN + i]) * weight[i];
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) values[row] = sum + weight[HIDDEN];
}

// d_normed = d weight; d_weight += d normed, and d to the bias, in row order. Grid: HIDDEN / 128, rounded up.
extern "C" __global__ void __launch_bounds__(128)
value_head_backward(const bf16* normed, const float* weight, const float* derivatives, int rows, float* d_normed,
                    float* d_weight) {
    int column = blockIdx.x * 128 + threadIdx.x;
    if (column >= HIDDEN) return;
    float sum = 0, bias = 0;
    for (long long row = 0; row < rows; row++) {
        float d = derivatives[row];
        d_normed[row * HIDDEN + column] = d * weight[column];
        sum += d * widen(normed[row * HIDDEN + column]);
        bias += d;
    }
    d_weight[column] += sum;
    if (column == 0) d_weight[HIDDEN] += bias;
}
