extern "C" __global__ void plain(float* a) { a[threadIdx.x] *= 2; }
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* a, int n) {
  __shared__ float s[256];
  float r[48];
  for (int i = 0; i < 48; ++i) r[i] = a[i * n + threadIdx.x];
  s[threadIdx.x & 255] = r[n & 15];
  __syncthreads();
  for (int i = 0; i < 48; ++i) a[i * n + threadIdx.x] = r[i] * r[47 - i] + s[i];
}
