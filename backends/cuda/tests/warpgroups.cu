// A product of 64 rows, 128 columns and 64 steps by a warpgroup, as generated code has it, for both layouts of each factor: rows of shared memory
// are lines of steps, or steps of lines. Both factors are lines of steps in memory.
template <int left_turned, int right_turned>
DEVICE void multiply(GLOBAL(const unsigned short) a, GLOBAL(const unsigned short) b, GLOBAL(float) d) {
  LARGE_SHARED(unsigned short, left, 12288);
  auto right = left + 4096;
  SUMS(sum, 64);
  const int t = threadIdx.x;
  for (int at = t; at < 64 * 64; at += 128) {
    const int line = at / 64, k = at % 64;
    left[left_turned ? swizzled(k, line) : swizzled(line, k)] = a[at];
  }
  for (int at = t; at < 128 * 64; at += 128) {
    const int line = at / 64, k = at % 64;
    right[right_turned ? line / 64 * 4096 + swizzled(k, line % 64) : swizzled(line, k)] = b[at];
  }
  fence_shared();
  __syncthreads();
  begin_products(sum);
  #pragma unroll
  for (int k = 0; k < 64; k += 16) {
    const word of_left = matrix_at(left + k * (left_turned ? 64 : 1), left_turned ? 8192 : 16, 1024);
    const word of_right = matrix_at(right + k * (right_turned ? 64 : 1), right_turned ? 8192 : 16, 1024);
    wgmma_f16<left_turned, right_turned>(sum, of_left, of_right);
  }
  end_products();
  wait_products<0>(sum);
  const int row = t / 32 * 16 + t % 32 / 4;
  #pragma unroll
  for (int i = 0; i < 64; ++i) d[(row + i / 2 % 2 * 8) * 128 + i / 4 * 8 + t % 4 * 2 + i % 2] = sum[i];
}

KERNEL(128) product_00(GLOBAL(const unsigned short) a, GLOBAL(const unsigned short) b, GLOBAL(float) d) {
  multiply<0, 0>(a, b, d);
}
KERNEL(128) product_01(GLOBAL(const unsigned short) a, GLOBAL(const unsigned short) b, GLOBAL(float) d) {
  multiply<0, 1>(a, b, d);
}
KERNEL(128) product_10(GLOBAL(const unsigned short) a, GLOBAL(const unsigned short) b, GLOBAL(float) d) {
  multiply<1, 0>(a, b, d);
}
KERNEL(128) product_11(GLOBAL(const unsigned short) a, GLOBAL(const unsigned short) b, GLOBAL(float) d) {
  multiply<1, 1>(a, b, d);
}
