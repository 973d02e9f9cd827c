// The sum of two arrays of floats as one would write it by hand, with vectors
// of WIDTH bytes: what BenchmarkSumF32VsC compares with.
//
// Reads lines of "count in_place repetitions" and answers each with the
// nanoseconds that one sum of count floats took. The memory is that of
// descriptor 3: MEMORY bytes, three arrays with PAD bytes behind each.
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

typedef float vec __attribute__((vector_size(WIDTH), aligned(4), may_alias));

#define LANES (WIDTH / sizeof(float))

__attribute__((noinline)) static void sum(float *dst, const float *a, const float *b, size_t n)
{
	size_t i = 0;
	for (; i + 4 * LANES <= n; i += 4 * LANES) {
		const vec *x = (const vec *)(a + i), *y = (const vec *)(b + i);
		vec s0 = x[0] + y[0], s1 = x[1] + y[1], s2 = x[2] + y[2], s3 = x[3] + y[3];
		vec *z = (vec *)(dst + i);
		z[0] = s0, z[1] = s1, z[2] = s2, z[3] = s3;
	}
	for (; i < n; i++)
		dst[i] = a[i] + b[i];
}

int main(void)
{
	float *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, 3, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	size_t count, in_place, repetitions;
	while (scanf("%zu %zu %zu", &count, &in_place, &repetitions) == 3) {
		size_t stride = count + PAD / sizeof(float);
		const float *a = memory + stride, *b = memory + 2 * stride;
		float *dst = in_place ? memory + stride : memory;
		struct timespec start, end;
		clock_gettime(CLOCK_MONOTONIC, &start);
		for (size_t r = 0; r < repetitions; r++)
			sum(dst, a, b, count);
		clock_gettime(CLOCK_MONOTONIC, &end);
		printf("%.3f\n", ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / repetitions);
		fflush(stdout);
	}
	return 0;
}
