/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a file from front to back as objects of one size through the real loader, as the core loop would: as many
 * objects in flight as it has room for, one flush a turn, asleep when there is nothing to reap. Prints one line,
 * "MiB/s 1234.5 median_ms 5.1 p99_ms 9.0 objects 341 ..."; the last partial object of the file is left out.
 * Decides nothing: tests/bench/loader.sh compares it with fio.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/size.h"
#include "manager/loader.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SLOTS_MAX 256u
#define HUGE_PAGE (2ull << 20)

struct bench {
	const char *path;
	struct loader_setup setup;
	uint64_t object_bytes, file_bytes;
	int alone; /* one object at a time: latency, not bandwidth */
	int huge;

	struct loader *loader;
	uint32_t file;
	char *memory;
	struct loader_read read[SLOTS_MAX];
	uint32_t free_slot[SLOTS_MAX], free_count;
	int64_t *took_ns;
	uint64_t objects, begun, ended, bytes_read;
	int status;
};

static struct bench bench = {.object_bytes = 6ull << 20, .huge = 1};

static void read_done(struct loader_read *read, int status)
{
	if (status != 0)
		bench.status = status;
	bench.took_ns[bench.ended++] = read->completed_ns - read->submitted_ns;
	bench.bytes_read += read->bytes_read;
	bench.free_slot[bench.free_count++] = (uint32_t)(read - bench.read);
}

static void begin_read(void)
{
	uint32_t slot = bench.free_slot[--bench.free_count];
	struct loader_read *read = &bench.read[slot];

	read->run_count = 1;
	read->done = read_done;
	read->run[0] = (struct loader_run){
		.file = bench.file,
		.file_off = bench.begun++ * bench.object_bytes,
		.bytes = bench.object_bytes,
		.needed_bytes = bench.object_bytes,
		.memory = bench.memory + slot * bench.object_bytes,
	};
	loader_submit(bench.loader, read);
}

static int may_begin(void)
{
	if (bench.begun == bench.objects || bench.free_count == 0)
		return 0;
	return bench.alone ? loader_in_flight(bench.loader) == 0 : loader_has_room(bench.loader, bench.file);
}

static void read_all(void)
{
	struct pollfd event = {.fd = loader_event_fd(bench.loader), .events = POLLIN};

	while (bench.ended < bench.objects && bench.status == 0) {
		while (may_begin())
			begin_read();
		loader_flush(bench.loader);
		if (loader_reap(bench.loader) == 0) {
			loader_flush(bench.loader);
			(void)poll(&event, 1, 1000);
		}
	}
}

/* Touched before the clock starts. Huge pages by hugetlb, else THP, as the pool has them. */
static int make_memory(uint64_t bytes, const char **ret_kind)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	bytes = cnre_size_align_up(bytes, HUGE_PAGE);
	*ret_kind = "hugetlb";
	bench.memory = bench.huge ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0) : MAP_FAILED;
	if (bench.memory == MAP_FAILED) {
		bench.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (bench.memory == MAP_FAILED)
			return -errno;
		*ret_kind = bench.huge ? "thp" : "4k";
		(void)madvise(bench.memory, bytes, bench.huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	}
	memset(bench.memory, 1, bytes);
	return loader_add_memory(bench.loader, bench.memory, bytes, 0) < 0 ? -EINVAL : 0;
}

static int compare_ns(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void print_result(int64_t took_ns, const char *kind)
{
	struct loader_status status;

	loader_get_status(bench.loader, &status);
	qsort(bench.took_ns, bench.objects, sizeof(*bench.took_ns), compare_ns);
	printf("MiB/s %.1f median_ms %.3f p99_ms %.3f objects %llu engine %s direct %u memory %s registered %d "
	       "chunk %u depth %u reads %u %s\n",
	       (double)bench.bytes_read / (1 << 20) / ((double)took_ns / CNRE_NS_PER_S),
	       (double)bench.took_ns[bench.objects / 2] / CNRE_NS_PER_MS,
	       (double)bench.took_ns[bench.objects * 99 / 100] / CNRE_NS_PER_MS, (unsigned long long)bench.objects,
	       status.uring ? "uring" : "pool", status.files_direct, kind, status.registered_buffers,
	       status.chunk_bytes, status.chunk_depth, bench.alone ? 1 : status.reads_in_flight_max, status.reason);
}

static int open_file(void)
{
	struct stat status;
	int file;

	if (stat(bench.path, &status) < 0)
		return -errno;
	bench.file_bytes = (uint64_t)status.st_size;
	bench.objects = bench.file_bytes / bench.object_bytes;
	file = loader_add_file(bench.loader, bench.path, bench.file_bytes);
	if (file < 0 || bench.objects == 0)
		return file < 0 ? file : -EINVAL;
	bench.file = (uint32_t)file;
	bench.took_ns = calloc(bench.objects, sizeof(*bench.took_ns));
	return bench.took_ns == NULL ? -ENOMEM : 0;
}

static int run(void)
{
	struct loader_status status;
	const char *kind;
	int64_t start_ns;
	int r = loader_open(&bench.loader, &bench.setup);

	if (r < 0)
		return r;
	loader_get_status(bench.loader, &status);
	bench.free_count = bench.alone ? 1 : status.reads_in_flight_max;
	for (uint32_t i = 0; i < bench.free_count; i++)
		bench.free_slot[i] = i;
	r = open_file();
	if (r == 0)
		r = make_memory(bench.free_count * bench.object_bytes, &kind);
	if (r == 0) {
		start_ns = cnre_clock_now_ns();
		read_all();
		r = bench.status;
		if (r == 0)
			print_result(cnre_clock_now_ns() - start_ns, kind);
	}
	bench.loader = loader_close(bench.loader);
	free(bench.took_ns);
	return r;
}

static uint64_t size_or_exit(const char *text, uint64_t most)
{
	uint64_t bytes;

	if (cnre_size_parse(text, &bytes) < 0 || bytes > most) {
		fprintf(stderr, "bench_loader: %s: not a size up to %llu\n", text, (unsigned long long)most);
		exit(2);
	}
	return bytes;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: bench_loader [--engine uring|pool|auto] [--object 6M] [--chunk N] [--depth N] [--reads N] [--threads N]\n"
		"                    [--alone] [--buffered] [--small-pages] FILE\n");
	return 2;
}

static int set_engine(const char *name)
{
	static const char *const names[] = {
		[LOADER_ENGINE_AUTO] = "auto", [LOADER_ENGINE_URING] = "uring", [LOADER_ENGINE_POOL] = "pool"};

	for (size_t i = 0; i < CNRE_COUNT_OF(names); i++) {
		if (strcmp(name, names[i]) != 0)
			continue;
		bench.setup.engine = (enum loader_engine)i;
		return 0;
	}
	return -EINVAL;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"engine", required_argument, NULL, 'e'}, {"object", required_argument, NULL, 'o'},
		{"chunk", required_argument, NULL, 'c'},  {"depth", required_argument, NULL, 'd'},
		{"reads", required_argument, NULL, 'r'},  {"threads", required_argument, NULL, 't'},
		{"alone", no_argument, NULL, 'a'},        {"buffered", no_argument, NULL, 'b'},
		{"small-pages", no_argument, NULL, 's'},  {0},
	};
	int option, r;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'e':
			if (set_engine(optarg) < 0)
				return usage();
			break;
		case 'o':
			bench.object_bytes = cnre_size_align_down(size_or_exit(optarg, 1ull << 30), 4096);
			break;
		case 'c':
			bench.setup.chunk_bytes = (uint32_t)size_or_exit(optarg, UINT32_MAX);
			break;
		case 'd':
			bench.setup.chunk_depth = (uint32_t)size_or_exit(optarg, UINT32_MAX);
			break;
		case 'r':
			bench.setup.reads_in_flight_max = (uint32_t)size_or_exit(optarg, SLOTS_MAX);
			break;
		case 't':
			bench.setup.pool_threads = (uint32_t)size_or_exit(optarg, UINT32_MAX);
			break;
		case 'a':
			bench.alone = 1;
			break;
		case 'b':
			bench.setup.force_buffered = 1;
			break;
		case 's':
			bench.huge = 0;
			break;
		default:
			return usage();
		}
	}
	if (optind + 1 != argc || bench.object_bytes == 0)
		return usage();
	bench.path = argv[optind];
	r = run();
	if (r < 0)
		fprintf(stderr, "bench_loader: %s: %s\n", bench.path, strerror(-r));
	return r < 0;
}
