/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold when every client has gone: see soak.h. Each check is a line with both numbers, passed or not. */
#include "tests/soak/soak.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define QUIET_SECONDS 20
#define ANONYMOUS_GROWTH_BYTES (8 << 20) /* arenas and stacks that the first requests had not touched yet */

static void check(struct soak *soak, int holds, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void check(struct soak *soak, int holds, const char *name, const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	(void)printf("  %-4s %-44s %s\n", holds ? "ok" : "FAIL", name, text);
	soak->problems += !holds;
	(void)json_array_append_new(soak->checks,
				    json_pack("{s:s, s:b, s:s}", "check", name, "holds", holds, "text", text));
}

static long long number(const json_t *answer, const char *path)
{
	return daemon_number(answer, path);
}

/* ---- of processes ---- */

static long long count_fds(pid_t pid)
{
	char path[64];
	long long count = 0;
	DIR *folder;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	if (folder == NULL)
		return -1;
	while (readdir(folder) != NULL)
		count++;
	(void)closedir(folder);
	return count - 2;
}

static long long anonymous_bytes(pid_t pid)
{
	char path[64], line[128];
	long long kilobytes = -1;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "RssAnon: %lld kB", &kilobytes) == 1)
			break;
	(void)fclose(file);
	return kilobytes < 0 ? -1 : kilobytes * 1024;
}

void soak_note_baseline(struct soak *soak)
{
	pid_t pid = daemon_manager_pid(&soak->daemon);

	soak->base_fds = count_fds(pid);
	soak->base_anonymous_bytes = anonymous_bytes(pid);
	soak->base_keeper_fds = pid != soak->daemon.pid ? count_fds(soak->daemon.pid) : 0;
}

static void check_process(struct soak *soak)
{
	pid_t pid = daemon_manager_pid(&soak->daemon);
	/* Each restart may hold the fence of the one before for as long as its reads can land. */
	long long fences = soak->managers_killed > 0 ? 2 : 0;
	long long fds = count_fds(pid), anonymous = anonymous_bytes(pid);

	check(soak, fds >= 0 && fds <= soak->base_fds + fences, "descriptors of the manager", "%lld, at the start %lld",
	      fds, soak->base_fds);
	if (pid != soak->daemon.pid) {
		fds = count_fds(soak->daemon.pid);
		check(soak, fds >= 0 && fds <= soak->base_keeper_fds + fences, "descriptors of the keeper",
		      "%lld, at the start %lld", fds, soak->base_keeper_fds);
	}
	check(soak, anonymous >= 0 && anonymous <= soak->base_anonymous_bytes + ANONYMOUS_GROWTH_BYTES,
	      "private memory of the manager", "%.1f MiB, at the start %.1f", (double)anonymous / (1 << 20),
	      (double)soak->base_anonymous_bytes / (1 << 20));
}

/* ---- of clients ---- */

static void check_clients(struct soak *soak)
{
	const char *first = "none";

	for (uint32_t i = 0; i < soak->options.clients; i++)
		if (atomic_load(&soak->shared->slot[i].problem) == 1) {
			first = soak->shared->slot[i].text;
			break;
		}
	check(soak, soak_sum(soak, SOAK_FAILURES) == 0, "no call of a client fails", "%llu; first: %s",
	      (unsigned long long)soak_sum(soak, SOAK_FAILURES), first);
	check(soak, soak_sum(soak, SOAK_WRONG) == 0 && soak_sum(soak, SOAK_COMPARISONS) > 0, "no leased byte is wrong",
	      "%llu wrong of %llu comparisons", (unsigned long long)soak_sum(soak, SOAK_WRONG),
	      (unsigned long long)soak_sum(soak, SOAK_COMPARISONS));
	check(soak, soak->ended_badly == 0, "no client ends or stands still", "%u; first: %s", soak->ended_badly,
	      soak->ended_text[0] != '\0' ? soak->ended_text : "none");
}

/* ---- of the manager ---- */

int soak_is_quiet(const json_t *stats)
{
	return number(stats, "clients") == 0 && number(stats, "leased_objects") == 0 &&
	       number(stats, "reserved_slabs") == 0 && number(stats, "loads_in_flight") == 0 &&
	       number(stats, "loads_queued") == 0;
}

static json_t *wait_until_quiet(struct soak *soak)
{
	struct timespec pause = {.tv_nsec = 20000000};
	json_t *stats = NULL;

	for (int i = 0; i < QUIET_SECONDS * 50; i++) {
		json_decref(stats);
		stats = daemon_ask(&soak->daemon, "stats");
		if (stats != NULL && soak_is_quiet(stats))
			break;
		(void)nanosleep(&pause, NULL);
	}
	return stats;
}

static void check_quiet(struct soak *soak, const json_t *stats)
{
	check(soak, stats != NULL && soak_is_quiet(stats), "sessions, leases, reservations, loads are gone",
	      "%lld sessions, %lld leased, %lld reserved, %lld in flight, %lld queued", number(stats, "clients"),
	      number(stats, "leased_objects"), number(stats, "reserved_slabs"), number(stats, "loads_in_flight"),
	      number(stats, "loads_queued"));
}

/* Every load is of an object that was not resident, so loads and evictions keep step, also where a kill fell between two counters. */
static void check_identities(struct soak *soak, const json_t *stats, long long slack)
{
	long long loads = number(stats, "loads"), evictions = number(stats, "evictions");
	long long resident = number(stats, "resident_objects"), bytes = number(stats, "resident_bytes");
	long long added = number(stats, "bytes_loaded") - number(stats, "bytes_evicted");
	long long mine = (long long)soak_sum(soak, SOAK_ACCESSES), accesses = number(stats, "accesses");
	long long off = loads - evictions - resident;
	int exact = soak->clients_killed == 0 && soak->managers_killed == 0;

	check(soak, off == 0 && number(stats, "admissions") == loads, "admissions = loads = evictions + resident",
	      "%lld, %lld = %lld + %lld", number(stats, "admissions"), loads, evictions, resident);
	check(soak,
	      number(stats, "prefetches_issued") ==
		      number(stats, "prefetches_used") + number(stats, "prefetches_late") + number(stats, "prefetches_wasted") +
			      number(stats, "prefetches_failed") + number(stats, "prefetches_unused"),
	      "each prefetch ends in one way", "%lld: %lld used, %lld late, %lld wasted, %lld failed, %lld unused",
	      number(stats, "prefetches_issued"), number(stats, "prefetches_used"), number(stats, "prefetches_late"),
	      number(stats, "prefetches_wasted"), number(stats, "prefetches_failed"), number(stats, "prefetches_unused"));
	off = (added - bytes) / (long long)soak->model.slab_bytes;
	check(soak, off >= -slack && off <= slack, "bytes loaded - evicted = resident", "%lld, %lld", added, bytes);
	check(soak,
	      number(stats, "hits") + number(stats, "misses") == accesses &&
		      number(stats, "joins") <= number(stats, "misses"),
	      "hits + misses = accesses", "%lld + %lld, %lld", number(stats, "hits"), number(stats, "misses"),
	      accesses);
	check(soak, exact ? accesses == mine : accesses >= mine, "accesses are those of the clients", "%lld, %lld%s",
	      accesses, mine, exact ? "" : " and what killed ones did not report");
	check(soak,
	      number(stats, "load_errors") == 0 && number(stats, "requests_invalid") == 0 &&
		      number(stats, "digest_errors") == 0,
	      "no load failed, no request was invalid", "%lld, %lld, %lld", number(stats, "load_errors"),
	      number(stats, "requests_invalid"), number(stats, "digest_errors"));
}

static void check_read_once(struct soak *soak, const json_t *stats, const json_t *status)
{
	long long objects = (long long)soak->model.layers * soak->model.experts;
	long long in_flight = soak->managers_killed * number(status, "pool.loads_max");
	long long payload = number(stats, "bytes_read"), total = objects * (long long)soak->model.slab_bytes;

	check(soak, number(stats, "evictions") == 0, "nothing is evicted when all fits", "%lld",
	      number(stats, "evictions"));
	check(soak, number(stats, "loads") <= objects + in_flight, "nothing is read twice",
	      "%lld loads, %lld objects, %lld at kills", number(stats, "loads"), objects, in_flight);
	/* Alignment reads a block more at either end of every part. */
	check(soak, payload <= total + objects * 8 * 8192 + in_flight * (long long)soak->model.slab_bytes, "bytes read",
	      "%lld of %lld", payload, total);
}

/* Whatever leaks, leases, slabs or sessions, keeps an object resident or a piece of the pool in use now. */
static void check_reset(struct soak *soak)
{
	const char *const arguments[] = {"--socket", soak->daemon.socket, "reset", NULL};
	int r = daemon_run("cnrectl", arguments, NULL, 0);
	json_t *stats = daemon_ask(&soak->daemon, "stats"), *status = daemon_ask(&soak->daemon, "status");

	check(soak,
	      r == 0 && number(stats, "resident_objects") == 0 && number(stats, "resident_bytes") == 0 &&
		      number(status, "pool.used_bytes") == 0,
	      "every expert can go, every slab is free", "%lld resident, %lld bytes of the pool in use",
	      number(stats, "resident_objects"), number(status, "pool.used_bytes"));
	json_decref(stats);
	json_decref(status);
}

static void check_kills(struct soak *soak, const json_t *stats, const json_t *status)
{
	long long restarts = number(status, "epoch") - 1;

	check(soak,
	      soak->clients_killed == soak->options.kill_clients &&
		      soak->managers_killed == soak->options.kill_managers,
	      "as many were killed as were asked for", "%u clients, %u managers", soak->clients_killed,
	      soak->managers_killed);
	check(soak, restarts == soak->managers_killed, "each killed manager was followed by one", "epoch %lld",
	      restarts + 1);
	/* A death that was seen by the next manager only counts there; one that fell between two sessions does not count. */
	check(soak, number(stats, "client_deaths") <= soak->clients_killed, "deaths of clients", "%lld, of %u killed",
	      number(stats, "client_deaths"), soak->clients_killed);
}

void soak_check_all(struct soak *soak)
{
	json_t *stats, *status;
	int status_code;

	if (soak->options.set_ram > 0)
		check(soak,
		      soak_set_ram(soak, soak->budget_bytes) == 0 && soak->budgets_refused * 2 <= soak->options.set_ram,
		      "the budget can be set back", "%u refused of %u", soak->budgets_refused, soak->budgets_set);
	stats = wait_until_quiet(soak);
	status = daemon_ask(&soak->daemon, "status");
	check_clients(soak);
	check_kills(soak, stats, status);
	check_quiet(soak, stats);
	check_identities(soak, stats, soak->managers_killed * number(status, "pool.loads_max"));
	if (soak->options.fits)
		check_read_once(soak, stats, status);
	check_process(soak);
	check_reset(soak);
	json_decref(soak->stats);
	soak->stats = stats;
	json_decref(status);
	status_code = daemon_stop(&soak->daemon, 20);
	check(soak, status_code == 0, "the manager ends properly", "exit status %d", status_code);
}
