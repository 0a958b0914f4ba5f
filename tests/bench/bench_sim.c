/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups a second of replays on one core: bench_sim TRACE [POLICY...] replays the trace with a quarter of its objects
 * against each policy, and against the LRU that a program would otherwise have: a chained hash table of nodes from
 * malloc in a doubly linked list, access by access, in the same pool, counting hits and nothing else. Reading is not
 * measured.
 */
#include "base/clock.h"
#include "tools/sim/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the textbook's ---- */

struct node {
	uint32_t object;
	struct node *newer, *older, *next; /* next: of its bucket */
};

struct textbook {
	struct node ends; /* newest at ends.older, oldest at ends.newer */
	struct node **bucket;
	uint32_t mask, count, capacity;
};

static uint32_t bucket_of(const struct textbook *book, uint32_t object)
{
	return (object * 2654435761u) >> 7 & book->mask;
}

static void link_newest(struct textbook *book, struct node *node)
{
	node->newer = &book->ends;
	node->older = book->ends.older;
	node->older->newer = node;
	book->ends.older = node;
}

static void unlink_node(struct node *node)
{
	node->newer->older = node->older;
	node->older->newer = node->newer;
}

static void drop_oldest(struct textbook *book)
{
	struct node *oldest = book->ends.newer, **at = &book->bucket[bucket_of(book, oldest->object)];

	unlink_node(oldest);
	while (*at != oldest)
		at = &(*at)->next;
	*at = oldest->next;
	free(oldest);
	book->count--;
}

/* 1: a hit; -1: no memory. */
static int use(struct textbook *book, uint32_t object)
{
	struct node **bucket = &book->bucket[bucket_of(book, object)], *node;

	for (node = *bucket; node != NULL; node = node->next)
		if (node->object == object) {
			unlink_node(node);
			link_newest(book, node);
			return 1;
		}
	if (book->count == book->capacity)
		drop_oldest(book);
	node = malloc(sizeof *node);
	if (node == NULL)
		return -1;
	*node = (struct node){.object = object, .next = *bucket};
	*bucket = node;
	link_newest(book, node);
	book->count++;
	return 0;
}

static int replay_textbook(const struct sim_trace *trace, uint32_t capacity, uint64_t *ret_hits)
{
	struct textbook book = {.mask = 1, .capacity = capacity};
	int r = 0;

	while (book.mask < capacity)
		book.mask = book.mask * 2 + 1;
	book.ends.newer = book.ends.older = &book.ends;
	book.bucket = calloc(book.mask + (size_t)1, sizeof *book.bucket);
	*ret_hits = 0;
	for (uint64_t i = 0; book.bucket != NULL && r >= 0 && i < trace->row_count; i++)
		for (uint32_t k = 0; r >= 0 && k < trace->row[i].count; k++) {
			r = use(&book, trace->object[trace->row[i].first + k]);
			*ret_hits += r == 1;
		}
	while (book.count > 0)
		drop_oldest(&book);
	r = book.bucket == NULL || r < 0 ? -ENOMEM : 0;
	free(book.bucket);
	return r;
}

/* ---- measurements ---- */

static double rate(uint64_t lookups, int64_t begun_ns)
{
	return (double)lookups / ((double)(cnre_clock_now_ns() - begun_ns) / 1e9) / 1e6;
}

static int measure(const struct sim_model *model, const struct sim_trace *trace, const char *policy)
{
	struct sim_arm arm = {
		.policy = policy, .capacity = {SIM_OBJECTS, model->geometry->object_count / 4}, .hysteresis = -1};
	struct sim_counts counts;
	int64_t begun_ns = cnre_clock_now_ns();
	int r = sim_replay(&arm, model, trace, NULL, &counts);

	if (r < 0)
		return r;
	printf("%s %.3f\n", policy, rate(counts.accesses, begun_ns));
	sim_counts_close(&counts);
	return 0;
}

static int measure_textbook(const struct sim_geometry *geometry, const struct sim_trace *trace)
{
	int64_t begun_ns = cnre_clock_now_ns();
	uint64_t hits;
	int r = replay_textbook(trace, geometry->object_count / 4, &hits);

	if (r == 0)
		printf("textbook %.3f\n", rate(trace->access_count, begun_ns));
	return r;
}

int main(int argc, char **argv)
{
	struct sim_load load = {.phases = SIM_PHASE_ALL};
	struct sim_geometry *geometry;
	struct sim_manifest manifest;
	struct sim_model model;
	struct sim_trace *trace;
	char message[512] = "";
	int r = argc < 2 ? -EINVAL
			 : sim_traces_open(&trace, &geometry, (const char *const *)&argv[1], 1, &load, message,
					   sizeof message);

	if (r == 0)
		r = sim_manifest_open(&manifest, NULL, geometry, 1, 1, 1000, message, sizeof message);
	if (r < 0) {
		fprintf(stderr, "bench_sim: %s\n", message[0] != '\0' ? message : "usage: bench_sim TRACE [POLICY...]");
		return 1;
	}
	model = (struct sim_model){.geometry = geometry, .manifest = &manifest};
	printf("objects %u\nlookups %llu\n", geometry->object_count, (unsigned long long)trace->access_count);
	r = measure_textbook(geometry, trace);
	for (int i = 2; r == 0 && i < argc; i++)
		r = measure(&model, trace, argv[i]);
	if (r < 0)
		fprintf(stderr, "bench_sim: %s\n", strerror(-r));
	sim_manifest_close(&manifest);
	sim_traces_close(trace, 1, geometry);
	return r < 0;
}
