/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that does what an inspector should notice, and says so. Commands on standard input, an answer line each:
 *
 *   hold LAYER EXPERT   takes a lease and keeps it: "hold RESULT"
 *   turn LAYER SECONDS  for so long takes and releases eight experts in turn: "turn RESULT"
 *   read FILE OFF BYTES reads a file by itself, past the page cache: "read BYTES"
 *
 * usage: inspect_client MODEL SOCKET. Ends with standard input. Only what libcnre offers.
 */
#include "cnre/cnre.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELD_MAX 64
#define ACQUIRE_NS (20ll * 1000000000ll)
#define READ_BYTES (1 << 20)

static struct cnre_expert held[HELD_MAX];
static int held_count;

static long long read_file(const char *path, long long off, long long bytes)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	long long got = 0;
	void *memory;

	if (fd < 0 || posix_memalign(&memory, 4096, READ_BYTES) != 0)
		return -1;
	while (got < bytes) {
		ssize_t some = pread(fd, memory, bytes - got < READ_BYTES ? (size_t)(bytes - got) : READ_BYTES, off + got);

		if (some <= 0)
			break;
		got += some;
	}
	free(memory);
	(void)close(fd);
	return got;
}

static int turn(struct cnre *client, unsigned layer, time_t seconds)
{
	time_t until = time(NULL) + seconds;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && time(NULL) < until; i++) {
		struct cnre_expert expert;

		r = cnre_acquire(client, layer, i % 8, ACQUIRE_NS, &expert);
		if (r >= 0)
			r = cnre_release(client, &expert);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct cnre_options options = {.size = sizeof options, .socket = argc > 2 ? argv[2] : NULL, .name = "holder"};
	char line[512], path[256];
	struct cnre *client = NULL;
	long long off, bytes;
	unsigned layer, expert, seconds;
	int r = argc > 2 ? cnre_attach(&client, argv[1], &options) : -1;

	printf("attached %d\n", r);
	(void)fflush(stdout);
	while (r == 0 && fgets(line, sizeof line, stdin) != NULL) {
		if (sscanf(line, "hold %u %u", &layer, &expert) == 2 && held_count < HELD_MAX) {
			int result = cnre_acquire(client, layer, expert, ACQUIRE_NS, &held[held_count]);

			held_count += result >= 0;
			printf("hold %d\n", result);
		} else if (sscanf(line, "turn %u %u", &layer, &seconds) == 2) {
			printf("turn %d\n", turn(client, layer, (time_t)seconds));
		} else if (sscanf(line, "read %255s %lld %lld", path, &off, &bytes) == 3) {
			printf("read %lld\n", read_file(path, off, bytes));
		} else {
			printf("unknown\n");
		}
		(void)fflush(stdout);
	}
	for (int i = 0; i < held_count; i++)
		(void)cnre_release(client, &held[i]);
	if (client != NULL)
		(void)cnre_detach(client);
	return r < 0;
}
