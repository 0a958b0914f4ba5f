/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hit in VRAM costs a client: one cnre_acquire_vram and cnre_release of an expert that lies there, beside cnre_acquire and
 * cnre_release of the same experts in memory, and a release on a stream that has nothing to do. Experts are used until the
 * manager has uploaded some. Prints one line of JSON, microseconds of p50 and p99.
 *
 * usage: bench_vram SOCKET MODEL CALLS
 *        77 and why: no driver, no GPU, or a manager that serves no memory of it
 */
#include "base/clock.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SKIPPED 77
#define CALLS_MAX 1000000u
#define OBJECTS_MAX 4096u
#define FILL_NS (30 * CNRE_NS_PER_S) /* how long experts are used before what is there is measured */
#define OBJECTS_ENOUGH 8u

struct object {
	uint32_t layer, expert;
};

static struct object found[OBJECTS_MAX];
static uint32_t found_count;
static double us[CALLS_MAX];

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void say_times(const char *name, uint32_t calls)
{
	qsort(us, calls, sizeof *us, by_value);
	(void)printf("\"%s_us\": [%.3f, %.3f]", name, us[calls / 2], us[calls - 1 - calls / 100]);
}

static int fail(const char *what, int error)
{
	(void)fprintf(stderr, "bench_vram: %s: %s\n", what, strerror(-error));
	return error == -ENODEV || error == -EACCES ? SKIPPED : 1;
}

/* Uses every expert in turn, and notes which of them were in VRAM; until some are, or the time is up. 0 or -errno. */
static int find_objects(struct cnre *client, const struct cnre_model_info *info)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(FILL_NS);
	struct cnre_expert expert;

	while (found_count < OBJECTS_ENOUGH && cnre_clock_left_ns(deadline_ns) > 0) {
		found_count = 0;
		for (uint32_t layer = 0; layer < info->layer_count; layer++)
			for (uint32_t i = 0; i < info->expert_count; i++) {
				int r = cnre_acquire(client, layer, i, CNRE_NS_PER_S, &expert);

				if (r == 0)
					(void)cnre_release(client, &expert);
				if (r < 0)
					continue; /* a layer without experts */
				r = cnre_acquire_vram(client, layer, i, 0, 0, &expert);
				if (r == -ENODEV || r == -EACCES)
					return r;
				if (r < 0)
					continue;
				(void)cnre_release(client, &expert);
				if (found_count < OBJECTS_MAX)
					found[found_count++] = (struct object){layer, i};
			}
		(void)usleep(20000);
	}
	return found_count > 0 ? 0 : -ETIMEDOUT;
}

enum way { IN_MEMORY, IN_VRAM, ON_STREAM };

/* 0 or -errno; an expert that went meanwhile is left out. */
static int measure(struct cnre *client, enum way way, uint32_t calls, const char *name)
{
	struct cnre_expert expert;
	uint32_t count = 0;

	for (uint32_t i = 0; count < calls && i < 2 * calls; i++) {
		const struct object *object = &found[i * 7919u % found_count];
		int64_t begun_ns = cnre_clock_now_ns();
		int r = way == IN_MEMORY ? cnre_acquire(client, object->layer, object->expert, CNRE_NS_PER_S, &expert)
					 : cnre_acquire_vram(client, object->layer, object->expert, 0, 0, &expert);

		if (r == -ETIMEDOUT)
			continue;
		if (r < 0)
			return r;
		r = way == ON_STREAM ? cnre_release_on_stream(client, &expert, NULL) : cnre_release(client, &expert);
		us[count] = (double)(cnre_clock_now_ns() - begun_ns) / 1000;
		count += r == 0;
		while (r == -EAGAIN) { /* as many points as there may be: until some have passed */
			(void)usleep(1000);
			r = cnre_release_on_stream(client, &expert, NULL);
		}
		if (r < 0)
			return r;
	}
	if (count == 0)
		return -ETIMEDOUT;
	say_times(name, count);
	return 0;
}

int main(int argc, char **argv)
{
	struct cnre_options options = {.size = sizeof options, .timeout_ns = 60 * CNRE_NS_PER_S, .name = "vram", .flags = CNRE_WANT_VRAM};
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre *client = NULL;
	uint32_t calls;
	int r;

	if (argc != 4) {
		(void)fprintf(stderr, "usage: bench_vram SOCKET MODEL CALLS\n");
		return 2;
	}
	options.socket = argv[1];
	calls = (uint32_t)strtoul(argv[3], NULL, 10);
	calls = calls < 100 ? 100 : calls > CALLS_MAX ? CALLS_MAX : calls;
	r = cnre_attach(&client, argv[2], &options);
	if (r < 0)
		return fail("attach", r);
	r = cnre_model(client, &info);
	if (r == 0)
		r = find_objects(client, &info);
	if (r < 0)
		return fail("experts in VRAM", r);
	(void)printf("{\"objects\": %u, ", found_count);
	r = measure(client, IN_MEMORY, calls, "memory");
	(void)printf(", ");
	if (r == 0)
		r = measure(client, IN_VRAM, calls, "vram");
	(void)printf(", ");
	if (r == 0)
		r = measure(client, ON_STREAM, calls / 100 + 100, "vram_on_stream");
	(void)printf("}\n");
	cnre_detach(client);
	return r < 0 ? fail("a call", r) : 0;
}
