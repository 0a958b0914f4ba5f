/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an expert in the view rows16 is to a kernel, and what making it costs; tests/bench/view.sh builds and runs it.
 *
 *   bench_view measure           one line of JSON: for each kernel of this CPU, nanoseconds of processor time for the three
 *                                products of an expert of OLMoE's size, rows and view in turn, over one expert (hot) and
 *                                over more than a last-level cache holds (cold); and of preparing one
 *   bench_view count KERNEL LAYOUT   the products of one expert once, in the function products(), for callgrind
 */
#include "engine/matmul.h"

#include "base/check.h"
#include "cnre/cnre.h"
#include "model/catalog.h"
#include "model/safetensors.h"
#include "model/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HIDDEN 2048u
#define INNER 1024u
#define MATRIX_BYTES ((size_t)HIDDEN * INNER)
#define COLD_EXPERTS 64u /* of 6 MiB, twice */
#define TURNS COLD_EXPERTS
#define PARTS 3u

struct expert { /* gate, up, down */
	struct matrix rows[PARTS], view[PARTS];
};

static float scale[HIDDEN], x[HIDDEN], y[HIDDEN];

/* Of this thread, so that others on the machine count less. */
static int64_t processor_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void *must_allocate(size_t bytes)
{
	void *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	CNRE_CHECK(memory != NULL);
	return memory;
}

static struct model_shape raw_shape(void)
{
	struct model_shape shape = {0};

	for (uint32_t i = 0; i < PARTS; i++) {
		uint32_t rows = i == 2 ? HIDDEN : INNER;

		shape.part[i] = (struct model_part_shape){
			.bytes = MATRIX_BYTES, .rows = rows, .columns = i == 2 ? INNER : HIDDEN, .dtype = MODEL_I8};
		shape.part[PARTS + i] = (struct model_part_shape){
			.bytes = rows * sizeof(float), .rows = rows, .columns = 1, .dtype = MODEL_F32, .block_rows = 1};
	}
	return shape;
}

/* Through the manager's own step: sixteen rows and blocks of four columns divide these sizes, so no part grows. */
static int64_t prepare(const struct expert *expert)
{
	const struct model_shape shape = raw_shape();
	const unsigned char *from[MODEL_ROLES] = {NULL};
	unsigned char *to[MODEL_ROLES] = {NULL};
	static float scales[PARTS][HIDDEN];
	int64_t start_ns;

	for (uint32_t i = 0; i < PARTS; i++) {
		from[i] = expert->rows[i].data;
		to[i] = (unsigned char *)expert->view[i].data;
		from[PARTS + i] = (const unsigned char *)scale;
		to[PARTS + i] = (unsigned char *)scales[i];
	}
	start_ns = processor_ns();
	view_rows16.prepare(&shape, from, to);
	return processor_ns() - start_ns;
}

static struct matrix make_matrix(uint32_t part, enum matrix_layout layout)
{
	return (struct matrix){.data = must_allocate(MATRIX_BYTES),
			       .scale = scale,
			       .rows = part == 2 ? HIDDEN : INNER,
			       .columns = part == 2 ? INNER : HIDDEN,
			       .dtype = CNRE_I8,
			       .layout = (uint16_t)layout};
}

static int64_t make_expert(struct expert *expert, uint32_t seed)
{
	for (uint32_t i = 0; i < PARTS; i++) {
		signed char *bytes;

		expert->rows[i] = make_matrix(i, MATRIX_ROWS);
		expert->view[i] = make_matrix(i, MATRIX_ROWS16);
		bytes = (signed char *)expert->rows[i].data;
		for (size_t k = 0; k < MATRIX_BYTES; k++) {
			seed = seed * 1664525u + 1013904223u;
			bytes[k] = (signed char)(seed >> 24);
		}
		memset((char *)expert->view[i].data, 0, MATRIX_BYTES); /* so that its pages are not made within the measurement */
	}
	return prepare(expert);
}

__attribute__((noinline)) static void products(const struct kernel *kernel, const struct matrix *matrix)
{
	static struct operand operand;

	for (uint32_t i = 0; i < PARTS; i++) {
		if (i != 1) /* gate and up meet the same one */
			operand_make(&operand, &matrix[i], x);
		operand_rows(kernel, &matrix[i], 0, matrix[i].rows, &operand, y);
	}
}

static int64_t time_products(const struct kernel *kernel, const struct matrix *matrix)
{
	int64_t start_ns = processor_ns();

	products(kernel, matrix);
	return processor_ns() - start_ns;
}

static int compare(const void *a, const void *b)
{
	const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static long long median(int64_t *took_ns, uint32_t count)
{
	qsort(took_ns, count, sizeof *took_ns, compare);
	return took_ns[count / 2];
}

/* Either layout in turn, and whoever is first changes. */
static void measure(const char *name, const struct expert *expert, uint32_t count, const char *heat)
{
	const struct kernel *kernel = kernel_find(name);
	int64_t rows_ns[TURNS], view_ns[TURNS];

	for (uint32_t i = 0; i < TURNS; i++) {
		const struct expert *one = &expert[i % count];

		if (i % 2 == 0)
			rows_ns[i] = time_products(kernel, one->rows);
		view_ns[i] = time_products(kernel, one->view);
		if (i % 2 != 0)
			rows_ns[i] = time_products(kernel, one->rows);
	}
	(void)printf("\"%s_%s_rows_ns\":%lld,\"%s_%s_view_ns\":%lld,", name, heat, median(rows_ns, TURNS), name, heat,
		     median(view_ns, TURNS));
}

static void measure_all(void)
{
	static const char *const names[] = {"avx512", "avx2", "plain"};
	struct expert *expert = must_allocate(COLD_EXPERTS * sizeof *expert);
	int64_t prepare_ns[COLD_EXPERTS];

	for (uint32_t i = 0; i < COLD_EXPERTS; i++)
		prepare_ns[i] = make_expert(&expert[i], i);
	(void)printf("{");
	for (unsigned n = 0; n < CNRE_COUNT_OF(names); n++) {
		if (kernel_find(names[n]) == NULL)
			continue;
		time_products(kernel_find(names[n]), expert->rows);
		time_products(kernel_find(names[n]), expert->view);
		measure(names[n], expert, 1, "hot");
		measure(names[n], expert, COLD_EXPERTS, "cold");
	}
	(void)printf("\"prepare_ns\":%lld}\n", median(prepare_ns, COLD_EXPERTS));
}

static int count(const char *name, const char *layout)
{
	const struct kernel *kernel = kernel_find(name);
	struct expert expert;

	if (kernel == NULL)
		return 77;
	(void)make_expert(&expert, 1);
	products(kernel, strcmp(layout, "view") == 0 ? expert.view : expert.rows);
	return 0;
}

int main(int argc, char **argv)
{
	for (uint32_t i = 0; i < HIDDEN; i++) {
		x[i] = (float)(int)(i * 37 % 101) - 50;
		scale[i] = 0.01f;
	}
	if (argc == 4 && strcmp(argv[1], "count") == 0)
		return count(argv[2], argv[3]);
	if (argc != 2 || strcmp(argv[1], "measure") != 0)
		return 2;
	measure_all();
	return 0;
}
