/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that read an expert, for checks on a real GPU. A row's sum is one of integers, exact in whatever order; then it becomes
 * a float and is multiplied once, by the row's scale, both rounded to nearest: so the bits are those of matvec.c on a CPU.
 * One block a row, THREADS threads; columns is a multiple of 8, rows of weights begin at multiples of 4 bytes.
 */
#define THREADS 128

__device__ static int sum_of_block(int sum)
{
	__shared__ int part[THREADS];

	part[threadIdx.x] = sum;
	__syncthreads();
	for (int half = THREADS / 2; half > 0; half /= 2) {
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	return part[0];
}

extern "C" __global__ void matvec_int8(const int *weights, const float *scales, const int *x, float *y, unsigned columns)
{
	const int *row = weights + (size_t)blockIdx.x * (columns / 4);
	int sum = 0;

	for (unsigned i = threadIdx.x; i < columns / 4; i += THREADS)
		sum = __dp4a(row[i], x[i], sum);
	sum = sum_of_block(sum);
	if (threadIdx.x == 0)
		y[blockIdx.x] = __fmul_rn(__int2float_rn(sum), scales[blockIdx.x]);
}

/* Two weights a byte, the first in the lower half, each less 8. */
extern "C" __global__ void matvec_int4(const unsigned char *weights, const float *scales, const signed char *x, float *y,
				       unsigned columns)
{
	const unsigned char *row = weights + (size_t)blockIdx.x * (columns / 2);
	int sum = 0;

	for (unsigned i = threadIdx.x; i < columns / 2; i += THREADS)
		sum += ((row[i] & 15) - 8) * x[2 * i] + ((row[i] >> 4) - 8) * x[2 * i + 1];
	sum = sum_of_block(sum);
	if (threadIdx.x == 0)
		y[blockIdx.x] = __fmul_rn(__int2float_rn(sum), scales[blockIdx.x]);
}

/* The one kernel that the stand-in driver runs too: the sum of all bytes. One block. */
extern "C" __global__ void cnre_checksum(const unsigned char *bytes, unsigned long long count, unsigned long long *sum)
{
	if (threadIdx.x == 0)
		*sum = 0;
	__syncthreads();
	unsigned long long own = 0;
	for (unsigned long long i = threadIdx.x; i < count; i += blockDim.x)
		own += bytes[i];
	atomicAdd(sum, own);
}
