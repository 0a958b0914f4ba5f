/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cold miss costs beyond the read itself: for experts that were never loaded, the time of cnre_acquire through a
 * running manager, and of plain O_DIRECT preads of the same bytes into one warm buffer, in turn. Prints one line of
 * JSON; coldmiss.sh repeats it.
 *
 * A virtual drive has caches below it, and the second read of the same bytes was twice as fast as the first. Half of
 * each kind being second made two humps and medians between them, off by more than the thing measured. So everything
 * is read once before, untimed: every timed read finds below whatever a second read finds.
 *
 * usage: bench_coldmiss SOCKET MODEL SAMPLES SEED
 */
#include "base/clock.h"
#include "base/size.h"
#include "model/catalog.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_UP_SAMPLES 8u /* thrown away: first faults, first wake-ups, frequency */

struct bench {
	struct cnre *client;
	struct model_catalog *catalog;
	int *shard_fd; /* [shard_count], O_DIRECT */
	unsigned char *buffer;
	uint32_t *order;              /* [object_count], shuffled */
	uint32_t sample_count;        /* warm-up included */
	int64_t *raw_ns, *acquire_ns; /* [sample_count] */
	int64_t *added_ns;            /* [sample_count]: acquire less raw of the same expert, milliseconds apart */
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "bench_coldmiss: %s: %s\n", what, strerror(-error));
	exit(1);
}

static void *allocate(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (memory == NULL)
		fail("memory", -ENOMEM);
	return memory;
}

static void open_shards(struct bench *bench)
{
	bench->shard_fd = allocate(bench->catalog->shard_count, sizeof(int));
	for (uint32_t i = 0; i < bench->catalog->shard_count; i++) {
		bench->shard_fd[i] = open(bench->catalog->shard[i].path, O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (bench->shard_fd[i] < 0)
			fail(bench->catalog->shard[i].path, -errno);
	}
}

static void shuffle(struct bench *bench, unsigned seed)
{
	uint32_t count = bench->catalog->object_count;

	bench->order = allocate(count, sizeof(uint32_t));
	for (uint32_t i = 0; i < count; i++)
		bench->order[i] = i;
	srandom(seed);
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t j = (uint32_t)random() % (i + 1);
		uint32_t other = bench->order[j];

		bench->order[j] = bench->order[i];
		bench->order[i] = other;
	}
}

static void open_bench(struct bench *bench, char **argv)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = argv[1], .name = "bench_coldmiss", .timeout_ns = -1};
	char message[MODEL_MESSAGE_BYTES];
	long samples = strtol(argv[3], NULL, 10);
	int r = model_catalog_open(&bench->catalog, argv[2], message);

	if (r < 0)
		fail(message, r);
	r = cnre_attach(&bench->client, argv[2], &options);
	if (r < 0)
		fail("attach", r);
	bench->sample_count = WARM_UP_SAMPLES + (samples > 0 ? (uint32_t)samples : 0);
	if (samples <= 0 || bench->sample_count > bench->catalog->object_count)
		fail("SAMPLES: more than there are experts", -EINVAL);
	open_shards(bench);
	shuffle(bench, (unsigned)strtoul(argv[4], NULL, 10));
	bench->raw_ns = allocate(bench->sample_count, sizeof(int64_t));
	bench->acquire_ns = allocate(bench->sample_count, sizeof(int64_t));
	bench->added_ns = allocate(bench->sample_count, sizeof(int64_t));
	bench->buffer = aligned_alloc(1u << 21, cnre_size_align_up(bench->catalog->slab_bytes_max, 1u << 21));
	if (bench->buffer == NULL)
		fail("memory", -ENOMEM);
	memset(bench->buffer, 1, bench->catalog->slab_bytes_max);
}

/* The reads of the manager's own plan, one after the other. */
static int64_t time_raw(const struct bench *bench, uint32_t object)
{
	struct model_plan plan;
	int64_t start_ns;

	model_plan(bench->catalog, object, &plan);
	start_ns = cnre_clock_now_ns();
	for (uint32_t i = 0; i < plan.run_count; i++) {
		const struct model_run *run = &plan.run[i];
		uint64_t done = 0;

		while (done < run->needed_bytes) {
			ssize_t n = pread(bench->shard_fd[run->shard], bench->buffer + run->slab_off + done,
					  run->bytes - done, (off_t)(run->file_off + done));

			if (n <= 0)
				fail("pread", n < 0 ? -errno : -EIO);
			done += (uint64_t)n;
		}
	}
	return cnre_clock_now_ns() - start_ns;
}

static int64_t time_acquire(const struct bench *bench, uint32_t object)
{
	const struct model_object *wanted = &bench->catalog->object[object];
	struct cnre_expert expert;
	int64_t start_ns, took_ns;
	int r;

	start_ns = cnre_clock_now_ns();
	r = cnre_acquire(bench->client, wanted->layer, wanted->expert, -1, &expert);
	took_ns = cnre_clock_now_ns() - start_ns;
	if (r < 0)
		fail("acquire", r);
	if (expert.flags & CNRE_WAS_RESIDENT)
		fail("an expert was resident already: reset the manager first", -EBUSY);
	r = cnre_release(bench->client, &expert);
	if (r < 0)
		fail("release", r);
	return took_ns;
}

static void measure(struct bench *bench)
{
	for (uint32_t i = 0; i < bench->sample_count; i++)
		(void)time_raw(bench, bench->order[i]);
	for (uint32_t i = 0; i < bench->sample_count; i++) {
		uint32_t object = bench->order[i];

		if (i % 2 == 0)
			bench->raw_ns[i] = time_raw(bench, object);
		bench->acquire_ns[i] = time_acquire(bench, object);
		if (i % 2 != 0)
			bench->raw_ns[i] = time_raw(bench, object);
		bench->added_ns[i] = bench->acquire_ns[i] - bench->raw_ns[i];
	}
}

static int by_value(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* Sorts; in microseconds. The drive's speed changes by the second, so differences are of pairs, not of medians. */
static void print_quantiles(const char *name, int64_t *times_ns, uint32_t count)
{
	qsort(times_ns, count, sizeof *times_ns, by_value);
	printf(",\"%s_us\":%.1f,\"%s_p90_us\":%.1f", name, (double)times_ns[count / 2] / 1e3, name,
	       (double)times_ns[count - 1 - count / 10] / 1e3);
}

static void print(struct bench *bench)
{
	uint32_t count = bench->sample_count - WARM_UP_SAMPLES;

	printf("{\"samples\":%" PRIu32 ",\"expert_bytes\":%" PRIu64, count, bench->catalog->payload_bytes_max);
	print_quantiles("raw", bench->raw_ns + WARM_UP_SAMPLES, count);
	print_quantiles("acquire", bench->acquire_ns + WARM_UP_SAMPLES, count);
	print_quantiles("added", bench->added_ns + WARM_UP_SAMPLES, count);
	puts("}");
}

int main(int argc, char **argv)
{
	struct bench bench = {0};

	if (argc != 5) {
		fprintf(stderr, "usage: bench_coldmiss SOCKET MODEL SAMPLES SEED\n");
		return 2;
	}
	open_bench(&bench, argv);
	measure(&bench);
	print(&bench);
	cnre_detach(bench.client);
	bench.catalog = model_catalog_close(bench.catalog);
	return 0;
}
