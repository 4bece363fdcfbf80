// nvcc -cubin -arch=sm_90a, of CUDA 13.0
__device__ float constant(const float* p) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(p));
  return x;
}
__device__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
extern "C" __global__ void waits(const float* a, float* b) {
  wait();
  b[threadIdx.x] = constant(a + threadIdx.x);
}
extern "C" __global__ void reads(const float* a, float* b) {
  const float x = constant(a + threadIdx.x);
  if (x < 0) return;  // or the compiler has it read behind the wait
  wait();
  b[threadIdx.x] = x;
}
extern "C" __global__ void never_waits(const float* a, float* b) {
  b[threadIdx.x] = constant(a + threadIdx.x);
}
extern "C" __global__ void only_writes(float* b) {
  wait();
  b[threadIdx.x] = 1;
}
