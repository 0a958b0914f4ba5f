/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs every crash point of a list, a line each: "crash-points LIST [POINT]". The list is made from the sources, "name
 * file" a line. Exit status 0 if all are repaired, 1 if not or if a point is reached by nobody, 77 if none could run.
 */
#include "tests/crash/crash.h"
#include "tests/support/truth.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MAX 256
#define OBJECTS (CRASH_LAYERS * CRASH_EXPERTS)

struct point {
	char name[64], file[128];
};

struct score {
	unsigned passed, failed, skipped;
};

static size_t read_list(const char *path, struct point *point)
{
	FILE *file = fopen(path, "re");
	size_t count = 0;

	if (file == NULL)
		return 0;
	while (count < POINTS_MAX && fscanf(file, "%63s %127s", point[count].name, point[count].file) == 2)
		count++;
	(void)fclose(file);
	return count;
}

int crash_generate(struct crash *crash)
{
	const char *const shape[] = {"--layers", "4", "--experts", "24", "--top-k", "4", "--hidden", "64", "--intermediate", "64",
				     "--vocab", "128", "--seed", "1", "--expert-format", "bf16", NULL};

	return daemon_generate(&crash->daemon, shape);
}

static int open_world(struct crash *crash)
{
	(void)snprintf(crash->ram, sizeof crash->ram, "%u", OBJECTS * 9 / 10 * CRASH_SLAB_BYTES);
	(void)snprintf(crash->low_ram, sizeof crash->low_ram, "%u", OBJECTS * 7 / 10 * CRASH_SLAB_BYTES);
	if (daemon_open(&crash->daemon) < 0 || crash_generate(crash) < 0)
		return -1;
	return truth_open(&crash->truth, crash->daemon.model);
}

static void report(struct score *score, const struct crash *crash, const struct point *point, const char *who, unsigned pass,
		   enum crash_result result)
{
	static const char *const words[] = {"ok", "FAILED", "NOT REACHED", "skipped"};

	(void)printf("%-22s %-26s %-8s pass %u  %s%s%s\n", point->name, point->file, who, pass, words[result],
		     result == CRASH_OK || result == CRASH_NOT_REACHED ? "" : ": ",
		     result == CRASH_OK || result == CRASH_NOT_REACHED ? "" : crash->reason);
	score->passed += result == CRASH_OK;
	score->failed += result == CRASH_FAILED || result == CRASH_NOT_REACHED;
	score->skipped += result == CRASH_SKIPPED;
}

/* What lies in client/ is a client's, in manager/ and on its disk the manager's; in shm/ the one that takes is the manager. */
static int is_of_manager(const struct point *point)
{
	return strncmp(point->file, "manager/", 8) == 0 || strncmp(point->file, "kvstore/disk", 12) == 0 ||
	       strncmp(point->name, "take-", 5) == 0;
}

static enum crash_result run_point(struct crash *crash, const char *name, unsigned pass, int of_manager)
{
	if (!of_manager)
		return crash_client_point(crash, name, pass);
	if (crash_is_kv(name))
		return crash_kv_point(crash, name, pass);
	if (strncmp(name, "prepare-", 8) == 0)
		return crash_view_point(crash, name, pass);
	if (strncmp(name, "listen-", 7) == 0)
		return crash_listener_point(crash, name);
	return strncmp(name, "fail-", 5) == 0 ? crash_drive_point(crash, name, pass) : crash_manager_point(crash, name, pass);
}

/* All of clients first: they share a manager. */
static void run_points(struct crash *crash, const struct point *point, size_t count, const char *only, struct score *score)
{
	static const unsigned passes[] = {1, 4};

	for (int of_manager = 0; of_manager <= 1; of_manager++) {
		for (size_t i = 0; i < 2 * count; i++) {
			const struct point *p = &point[i / 2];
			unsigned pass = passes[i % 2];
			enum crash_result result;

			if (is_of_manager(p) != of_manager || (only != NULL && strcmp(only, p->name) != 0))
				continue;
			result = run_point(crash, p->name, pass, of_manager);
			report(score, crash, p, of_manager ? "manager" : "client", pass, result);
			if (result != CRASH_OK)
				crash_client_world_close(crash); /* so that one loss is reported once */
		}
		crash_client_world_close(crash);
	}
}

int main(int argc, char **argv)
{
	static struct point point[POINTS_MAX];
	static struct crash crash;
	struct score score = {0};
	size_t count = argc < 2 ? 0 : read_list(argv[1], point);

	if (count == 0) {
		(void)fprintf(stderr, "usage: crash-points LIST [POINT]\n");
		return 2;
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	if (open_world(&crash) < 0) {
		(void)fprintf(stderr, "crash-points: no world: %s\n", crash.daemon.reason);
		return 1;
	}
	run_points(&crash, point, count, argc > 2 ? argv[2] : NULL, &score);
	truth_close(crash.truth);
	daemon_close(&crash.daemon);
	(void)printf("%zu points: %u passed, %u failed, %u skipped\n", count, score.passed, score.failed, score.skipped);
	return score.failed > 0 ? 1 : score.passed > 0 ? 0 : 77;
}
