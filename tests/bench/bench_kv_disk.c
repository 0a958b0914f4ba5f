/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes blocks of one size to a directory and reads them back, past the page cache, as many at once as the disk takes.
 * Prints one line, "write_mib 900.1 read_mib 1100.2 write_calls 3.1 read_calls 2.0 check_mib 9000.0 engine uring"; calls
 * are the thread's for a block. Decides nothing: tests/bench/kv_disk.sh compares it with fio.
 */
#include "base/clock.h"
#include "base/size.h"
#include "kvstore/disk.h"

#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS_DEFAULT 64u
#define BYTES_DEFAULT (12ull << 20)
#define WAIT_MS 1000

struct bench {
	struct kv_disk_setup setup;
	uint32_t blocks, done;
	uint64_t bytes;
	int status;
	struct kv_disk *disk;
	struct kv_folder *folder;
	struct kv_block *block;
	struct kv_disk_job *job;
	char *memory;
};

static struct bench bench = {.blocks = BLOCKS_DEFAULT, .bytes = BYTES_DEFAULT};

static void job_done(struct kv_disk_job *job)
{
	if (job->status != 0)
		bench.status = job->status;
	bench.done++;
}

static char *payload_of(uint32_t number)
{
	return bench.memory + number * cnre_size_align_up(bench.bytes, 4096);
}

static void make_blocks(void)
{
	for (uint32_t i = 0; i < bench.blocks; i++) {
		struct kv_block *block = &bench.block[i];
		uint64_t state = i + 1;

		for (uint64_t off = 0; off + 8 <= bench.bytes; off += 8) {
			state = state * 6364136223846793005u + 1442695040888963407u; /* no drive shall pack it */
			memcpy(payload_of(i) + off, &state, 8);
		}
		block->token_count = block->block_tokens = 1;
		block->token[0] = (int32_t)i;
		block->mark.first = 1;
		block->bytes = bench.bytes;
		kv_check_payload(payload_of(i), bench.bytes, block->check);
		(void)kv_key_block(block->parent, block->token, 1, &block->mark, block->key);
	}
}

/* All blocks at once: the disk has its own depth. The nanoseconds it took; calls per block. */
static int64_t run(enum kv_disk_kind kind, double *ret_calls)
{
	struct pollfd event = {.fd = kv_disk_event_fd(bench.disk), .events = POLLIN};
	struct kv_disk_status before, after;
	int64_t start_ns = cnre_clock_now_ns();

	kv_disk_get_status(bench.disk, &before);
	bench.done = 0;
	for (uint32_t i = 0; i < bench.blocks; i++) {
		bench.job[i] = (struct kv_disk_job){.kind = kind,
						    .folder = bench.folder,
						    .block = &bench.block[i],
						    .memory = payload_of(i),
						    .done = job_done};
		kv_disk_submit(bench.disk, &bench.job[i]);
	}
	while (bench.done < bench.blocks) {
		(void)poll(&event, 1, WAIT_MS);
		(void)kv_disk_reap(bench.disk);
	}
	start_ns = cnre_clock_now_ns() - start_ns;
	kv_disk_get_status(bench.disk, &after);
	*ret_calls = (double)(after.syscalls - before.syscalls) / bench.blocks;
	return start_ns;
}

static double mib_per_s(int64_t took_ns)
{
	return (double)bench.blocks * (double)bench.bytes / (1 << 20) / ((double)took_ns / CNRE_NS_PER_S);
}

static int64_t time_check(void)
{
	int64_t start_ns = cnre_clock_now_ns();
	unsigned char check[KV_BLOCK_CHECK_BYTES];

	for (uint32_t i = 0; i < bench.blocks; i++)
		kv_check_payload(payload_of(i), bench.bytes, check);
	return cnre_clock_now_ns() - start_ns;
}

static void measure(void)
{
	double write_calls, read_calls, remove_calls;
	int64_t write_ns = run(KV_DISK_WRITE, &write_calls), read_ns = run(KV_DISK_READ, &read_calls);
	struct kv_disk_status status;

	(void)run(KV_DISK_REMOVE, &remove_calls);
	kv_disk_get_status(bench.disk, &status);
	printf("write_mib %.1f read_mib %.1f write_calls %.2f read_calls %.2f remove_calls %.2f check_mib %.1f engine %s\n",
	       mib_per_s(write_ns), mib_per_s(read_ns), write_calls, read_calls, remove_calls, mib_per_s(time_check()),
	       status.uring ? "uring" : "plain");
}

static int parse(int argc, char **argv)
{
	static const struct option options[] = {{"plain", no_argument, NULL, 'p'},
						{"blocks", required_argument, NULL, 'n'},
						{"bytes", required_argument, NULL, 'b'},
						{"depth", required_argument, NULL, 'd'},
						{0}};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'p')
			bench.setup.plain = 1;
		else if (option == 'n')
			bench.blocks = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'b')
			bench.bytes = strtoull(optarg, NULL, 10);
		else if (option == 'd')
			bench.setup.depth = (uint32_t)strtoul(optarg, NULL, 10);
		else
			return -1;
	}
	bench.setup.directory = argv[optind];
	return optind + 1 == argc && bench.blocks > 0 && bench.bytes >= 8 ? 0 : -1;
}

int main(int argc, char **argv)
{
	char message[KV_DISK_MESSAGE_BYTES];
	uint64_t bytes;

	if (parse(argc, argv) < 0) {
		(void)fprintf(stderr,
			      "usage: bench_kv_disk [--plain] [--blocks N] [--bytes N] [--depth N] DIRECTORY\n");
		return 2;
	}
	bytes = bench.blocks * cnre_size_align_up(bench.bytes, 4096);
	bench.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bench.block = calloc(bench.blocks, sizeof(*bench.block));
	bench.job = calloc(bench.blocks, sizeof(*bench.job));
	if (bench.memory == MAP_FAILED || bench.block == NULL || bench.job == NULL)
		return 1;
	(void)madvise(bench.memory, bytes,
		      MADV_NOHUGEPAGE); /* as fio has it, and as the pool of prefixes mostly does */
	make_blocks();
	if (kv_disk_open(&bench.disk, &bench.setup, message) < 0 ||
	    kv_disk_folder(bench.disk, "bench", &bench.folder) < 0) {
		(void)fprintf(stderr, "bench_kv_disk: %s\n", message);
		return 1;
	}
	measure();
	(void)kv_disk_close(bench.disk, -1);
	if (bench.status != 0)
		(void)fprintf(stderr, "bench_kv_disk: %s\n", strerrordesc_np(-bench.status));
	return bench.status != 0;
}
