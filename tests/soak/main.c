/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soak from beginning to end: checkpoint, manager, clients, one line a second, checks, a table and JSON. Exit status
 * 0 if every check holds, 1 if not, 2 usage, 77 if the run needs a keeper and this manager has none.
 */
#include "tests/soak/soak.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAYERS 6u
#define END_SECONDS 90 /* for clients to finish what they do */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

uint64_t soak_sum(const struct soak *soak, enum soak_count which)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < soak->options.clients; i++)
		sum += soak_get(&soak->shared->slot[i], which);
	return sum;
}

int soak_set_ram(struct soak *soak, uint64_t bytes)
{
	char number[32];
	const char *const arguments[] = {"--socket", soak->daemon.socket, "set", "ram", number, NULL};

	(void)snprintf(number, sizeof number, "%llu", (unsigned long long)bytes);
	return daemon_run("cnrectl", arguments, NULL, 0);
}

static int give_up(struct soak *soak, const char *what)
{
	(void)fprintf(stderr, "soak: %s%s%s\n", what, soak->daemon.reason[0] != '\0' ? ": " : "", soak->daemon.reason);
	return 1;
}

/* ---- world ---- */

static int make_world(struct soak *soak)
{
	char layers[16], experts[16], seed[16], ram[32];
	const char *const shape[] = {
		"--layers", layers, "--experts",      experts, "--seed",  seed,  "--top-k",         "6",
		"--hidden", "256",  "--intermediate", "128",   "--vocab", "128", "--expert-format", "bf16",
		NULL};
	const char *start[sizeof soak->options.manager / sizeof soak->options.manager[0] + 3] = {"--ram", ram};
	uint64_t objects;

	soak->model = (struct soak_model){
		.layers = LAYERS, .experts = soak->options.experts, .slab_bytes = 3ull * 256 * 128 * 2};
	objects = (uint64_t)LAYERS * soak->options.experts;
	soak->budget_bytes = objects * soak->model.slab_bytes / 10 * (soak->options.fits ? 12 : 7);
	soak->low_budget_bytes = soak->budget_bytes / 100 * 75;
	(void)snprintf(layers, sizeof layers, "%u", LAYERS);
	(void)snprintf(experts, sizeof experts, "%u", soak->options.experts);
	(void)snprintf(seed, sizeof seed, "%u", soak->options.seed);
	(void)snprintf(ram, sizeof ram, "%llu", (unsigned long long)soak->budget_bytes);
	memcpy(&start[2], soak->options.manager, soak->options.manager_count * sizeof start[0]);
	if (daemon_open(&soak->daemon) < 0 || daemon_generate(&soak->daemon, shape) < 0)
		return -1;
	return daemon_start(&soak->daemon, start);
}

/* ---- clients ---- */

static void start_client(struct soak *soak, uint32_t slot)
{
	struct soak_process *process = &soak->client[slot];
	struct soak_client client = {.options = &soak->options,
				     .model = &soak->model,
				     .directory = soak->daemon.model,
				     .socket = soak->daemon.socket,
				     .shared = soak->shared,
				     .slot = slot,
				     .seed = soak_random(&soak->seed)};
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a soak that is killed leaves nobody behind */
		(void)signal(SIGINT, SIG_IGN);
		_exit(soak_client_run(&client));
	}
	*process = (struct soak_process){
		.pid = pid > 0 ? pid : 0, .incarnation = process->incarnation + 1, .moved_ns = cnre_clock_now_ns()};
}

static void note_bad_end(struct soak *soak, const char *what, uint32_t slot, int number)
{
	if (soak->ended_badly++ == 0)
		(void)snprintf(soak->ended_text, sizeof soak->ended_text, "client %u %s %d", slot, what, number);
}

/* Reaps whoever ended. Who ended well while the run goes on, or was killed by us, is followed by another. */
static void reap(struct soak *soak, int restart)
{
	int status;
	pid_t pid;

	for (uint32_t i = 0; i < soak->options.clients; i++) {
		struct soak_process *process = &soak->client[i];

		if (process->pid <= 0 || (pid = waitpid(process->pid, &status, WNOHANG)) == 0)
			continue;
		process->pid = 0;
		if (pid > 0 && !process->was_killed && WIFSIGNALED(status))
			note_bad_end(soak, "ended by signal", i, WTERMSIG(status));
		else if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) != 0)
			note_bad_end(soak, "gave up with status", i, WEXITSTATUS(status));
		else if (restart)
			start_client(soak, i);
	}
}

static uint32_t living(const struct soak *soak)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < soak->options.clients; i++)
		count += soak->client[i].pid > 0;
	return count;
}

static void look_for_stalls(struct soak *soak, int64_t now_ns)
{
	for (uint32_t i = 0; i < soak->options.clients; i++) {
		struct soak_process *process = &soak->client[i];
		uint64_t calls = atomic_load_explicit(&soak->shared->slot[i].calls, memory_order_relaxed);

		if (calls != process->calls || process->pid <= 0 || process->continue_ns != 0) {
			process->calls = calls;
			process->moved_ns = now_ns;
		} else if (now_ns - process->moved_ns > SOAK_STALL_NS && !process->was_killed) {
			note_bad_end(soak, "stands still, seconds:", i, (int)(SOAK_STALL_NS / SOAK_NS_PER_S));
			process->was_killed = 1;
			(void)kill(process->pid, SIGKILL);
		}
	}
}

/* ---- the run ---- */

static void print_line(struct soak *soak, int64_t now_ns)
{
	json_t *stats = daemon_ask(&soak->daemon, "stats");

	if (stats != NULL) {
		json_decref(soak->stats);
		soak->stats = stats;
	}
	(void)printf(
		"%4llds %2u clients %8llu leases %8.1f MiB compared, %6lld loads %6lld evictions %4lld leased | killed %u+%u stopped %u+%u ram %u | failed %llu wrong %llu%s\n",
		(long long)((now_ns - soak->start_ns) / SOAK_NS_PER_S), living(soak),
		(unsigned long long)soak_sum(soak, SOAK_LEASES),
		(double)soak_sum(soak, SOAK_COMPARED_BYTES) / (1 << 20), daemon_number(soak->stats, "loads"),
		daemon_number(soak->stats, "evictions"), daemon_number(soak->stats, "leased_objects"),
		soak->clients_killed, soak->managers_killed, soak->clients_stopped, soak->managers_stopped,
		soak->budgets_set, (unsigned long long)soak_sum(soak, SOAK_FAILURES),
		(unsigned long long)soak_sum(soak, SOAK_WRONG), stats == NULL ? " (no answer)" : "");
	(void)fflush(stdout);
}

static int has_problem(const struct soak *soak)
{
	return soak_sum(soak, SOAK_FAILURES) + soak_sum(soak, SOAK_WRONG) + soak->ended_badly > 0;
}

/* Ends early at the first problem: what comes after it only hides it. */
static void run(struct soak *soak)
{
	struct timespec pause = {.tv_nsec = 2000000};
	int64_t next_line_ns, now_ns = cnre_clock_now_ns();

	soak->start_ns = now_ns;
	soak->end_ns = now_ns + soak->options.seconds * SOAK_NS_PER_S;
	next_line_ns = now_ns + SOAK_NS_PER_S;
	for (uint32_t i = 0; i < soak->options.clients; i++)
		start_client(soak, i);
	while (now_ns < soak->end_ns && !interrupted && !has_problem(soak)) {
		(void)nanosleep(&pause, NULL);
		now_ns = cnre_clock_now_ns();
		reap(soak, 1);
		soak_killers_turn(soak, now_ns);
		look_for_stalls(soak, now_ns);
		if (now_ns >= next_line_ns) {
			print_line(soak, now_ns);
			next_line_ns += SOAK_NS_PER_S;
		}
	}
}

static void end_clients(struct soak *soak)
{
	struct timespec pause = {.tv_nsec = 2000000};

	atomic_store(&soak->shared->stop, 1);
	soak_continue_all(soak);
	for (int i = 0; living(soak) > 0 && i < END_SECONDS * 500; i++) {
		(void)nanosleep(&pause, NULL);
		reap(soak, 0);
		look_for_stalls(soak, cnre_clock_now_ns());
	}
	for (uint32_t i = 0; i < soak->options.clients; i++)
		if (soak->client[i].pid > 0) {
			note_bad_end(soak, "did not end within seconds", i, END_SECONDS);
			(void)kill(soak->client[i].pid, SIGKILL);
			(void)waitpid(soak->client[i].pid, NULL, 0);
			soak->client[i].pid = 0;
		}
}

/* One client once through, so that what is made at first use is there before it is counted. */
static int warm_up(struct soak *soak)
{
	struct timespec pause = {.tv_nsec = 300000000};
	json_t *stats = NULL;

	start_client(soak, 0);
	(void)nanosleep(&pause, NULL);
	end_clients(soak);
	for (int i = 0; i < 100 && (stats = daemon_ask(&soak->daemon, "stats")) != NULL && !soak_is_quiet(stats); i++) {
		json_decref(stats);
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	json_decref(stats);
	soak_note_baseline(soak);
	atomic_store(&soak->shared->stop, 0);
	return has_problem(soak) ? -1 : 0;
}

/* ---- results ---- */

static void print_table(const struct soak *soak)
{
	static const struct {
		const char *name;
		enum soak_count which;
	} rows[] = {{"leases", SOAK_LEASES},
		    {"of them resident", SOAK_HITS},
		    {"empty polls", SOAK_EMPTY_POLLS},
		    {"batches", SOAK_BATCHES},
		    {"prefetches", SOAK_PREFETCHES},
		    {"sessions", SOAK_SESSIONS},
		    {"attach retries", SOAK_ATTACH_RETRIES},
		    {"comparisons", SOAK_COMPARISONS}};
	uint64_t longest_ns = 0;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		(void)printf("  %-26s %12llu\n", rows[i].name, (unsigned long long)soak_sum(soak, rows[i].which));
	for (uint32_t i = 0; i < soak->options.clients; i++)
		if (soak_get(&soak->shared->slot[i], SOAK_LONGEST_WAIT_NS) > longest_ns)
			longest_ns = soak_get(&soak->shared->slot[i], SOAK_LONGEST_WAIT_NS);
	(void)printf("  %-26s %12.1f ms\n  %-26s %12.1f GiB\n", "longest call", (double)longest_ns / 1e6, "compared",
		     (double)soak_sum(soak, SOAK_COMPARED_BYTES) / (1 << 30));
}

static void write_json(const struct soak *soak)
{
	json_t *root = json_pack("{s:s, s:b, s:i, s:i, s:i, s:i, s:I, s:I, s:O, s:O}", "name", "soak", "passed",
				 soak->problems == 0, "seconds", (int)soak->options.seconds, "clients",
				 (int)soak->options.clients, "clients_killed", (int)soak->clients_killed,
				 "managers_killed", (int)soak->managers_killed, "leases",
				 (json_int_t)soak_sum(soak, SOAK_LEASES), "compared_bytes",
				 (json_int_t)soak_sum(soak, SOAK_COMPARED_BYTES), "checks", soak->checks, "stats",
				 soak->stats != NULL ? soak->stats : json_null());

	if (root == NULL || json_dump_file(root, soak->options.json, JSON_INDENT(1)) < 0)
		(void)fprintf(stderr, "soak: %s cannot be written\n", soak->options.json);
	json_decref(root);
}

/* What the manager said last, where something failed. */
static void show_log(const struct soak *soak)
{
	const char *const arguments[] = {"-n", "30", soak->daemon.log, NULL};
	static char output[16384];

	if (daemon_run("/usr/bin/tail", arguments, output, sizeof output) == 0)
		(void)printf("the manager's log ends with\n%s", output);
}

static int soak_through(struct soak *soak)
{
	if (make_world(soak) < 0)
		return give_up(soak, "no world");
	if (warm_up(soak) < 0)
		return give_up(soak, soak->ended_badly > 0 ? soak->ended_text : soak->shared->slot[0].text);
	run(soak);
	end_clients(soak);
	print_table(soak);
	soak_check_all(soak);
	if (soak->problems > 0)
		show_log(soak);
	if (soak->options.json != NULL)
		write_json(soak);
	(void)printf("soak: %s\n", soak->problems == 0 ? "nothing failed, nothing was lost" : "FAILED");
	return soak->problems > 0 || interrupted;
}

/* A keeper restarts a manager only so often: the run takes as long as the kills need. */
static int prepare_kills(struct soak *soak)
{
	uint64_t least = soak->options.kill_managers * (uint64_t)SOAK_MANAGER_LIFE_NS / SOAK_NS_PER_S * 10 / 9 + 1;

	if (soak->options.kill_managers == 0)
		return 0;
	if (!daemon_has_keeper()) {
		(void)printf("soak: --kill-managers: this cnre-managerd has no keeper that would start it again\n");
		return -1;
	}
	if (soak->options.seconds < least)
		soak->options.seconds = (uint32_t)least;
	return 0;
}

int main(int argc, char **argv)
{
	static struct soak soak;
	int r = soak_options_parse(&soak.options, argc, argv);

	if (r != 0)
		return r > 0 ? 0 : 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGINT, on_signal);
	(void)signal(SIGTERM, on_signal);
	if (prepare_kills(&soak) < 0)
		return 77;
	soak.seed = soak.options.seed;
	soak.checks = json_array();
	soak.shared = mmap(NULL, sizeof *soak.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	r = soak.shared == MAP_FAILED ? give_up(&soak, "no shared memory") : soak_through(&soak);
	daemon_close(&soak.daemon);
	json_decref(soak.stats);
	json_decref(soak.checks);
	return r;
}
