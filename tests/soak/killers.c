/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who disturbs the soak: each kind so often in the whole run, evenly, at moments that have nothing to do with what
 * clients do. Kills by process id only, and only processes that the soak started.
 */
#include "tests/soak/soak.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#define STOP_CLIENT_NS 300000000u
#define STOP_MANAGER_NS 100000000u

/* How many of `total` are due by now. The last tenth of the run is left alone, so that what was done can show. */
static uint32_t due(const struct soak *soak, uint32_t total, int64_t now_ns)
{
	int64_t span_ns = (soak->end_ns - soak->start_ns) / 10 * 9;
	double part = (double)(now_ns - soak->start_ns) / (double)span_ns;

	return part >= 1 ? total : (uint32_t)(part * total);
}

static struct soak_process *choose_client(struct soak *soak)
{
	struct soak_process *client = &soak->client[soak_random(&soak->seed) % soak->options.clients];

	return client->pid > 0 && !client->was_killed ? client : NULL;
}

static void say(const struct soak *soak, const char *what, pid_t pid)
{
	if (soak->options.verbose)
		(void)printf("        %s %d\n", what, (int)pid);
}

static void kill_client(struct soak *soak)
{
	struct soak_process *client = choose_client(soak);

	if (client == NULL)
		return;
	client->was_killed = 1;
	say(soak, "SIGKILL client", client->pid);
	(void)kill(client->pid, SIGKILL);
	soak->clients_killed++;
}

static void stop_client(struct soak *soak, int64_t now_ns)
{
	struct soak_process *client = choose_client(soak);

	if (client == NULL || client->continue_ns != 0)
		return;
	say(soak, "SIGSTOP client", client->pid);
	(void)kill(client->pid, SIGSTOP);
	client->continue_ns = now_ns + 1 + soak_random(&soak->seed) % STOP_CLIENT_NS;
	soak->clients_stopped++;
}

static void continue_clients(struct soak *soak, int64_t now_ns)
{
	for (uint32_t i = 0; i < soak->options.clients; i++) {
		struct soak_process *client = &soak->client[i];

		if (client->continue_ns == 0 || client->continue_ns > now_ns)
			continue;
		client->continue_ns = 0;
		if (client->pid > 0)
			(void)kill(client->pid, SIGCONT);
	}
}

void soak_continue_all(struct soak *soak)
{
	continue_clients(soak, INT64_MAX);
}

static void kill_manager(struct soak *soak)
{
	pid_t pid = daemon_manager_pid(&soak->daemon);

	if (pid <= 0 || pid == soak->daemon.pid) /* between two, or nobody would start it again */
		return;
	say(soak, "SIGKILL manager", pid);
	(void)kill(pid, SIGKILL);
	soak->managers_killed++;
}

static void stop_manager(struct soak *soak)
{
	pid_t pid = daemon_manager_pid(&soak->daemon);
	struct timespec pause = {.tv_nsec = 1 + soak_random(&soak->seed) % STOP_MANAGER_NS};

	if (pid <= 0)
		return;
	say(soak, "SIGSTOP manager", pid);
	(void)kill(pid, SIGSTOP);
	(void)nanosleep(&pause, NULL); /* nobody asks it anything meanwhile */
	(void)kill(pid, SIGCONT);
	soak->managers_stopped++;
}

static void change_budget(struct soak *soak)
{
	uint64_t bytes = soak->budgets_set % 2 == 0 ? soak->low_budget_bytes : soak->budget_bytes;

	say(soak, "set ram, MiB:", (pid_t)(bytes >> 20));
	soak->budgets_set++;
	if (soak_set_ram(soak, bytes) != 0)
		soak->budgets_refused++; /* it says so when it is below what is promised to clients */
}

/* At most one of a kind a turn, so that a late turn does not make a burst. */
void soak_killers_turn(struct soak *soak, int64_t now_ns)
{
	const struct soak_options *options = &soak->options;

	continue_clients(soak, now_ns);
	if (soak->clients_killed < due(soak, options->kill_clients, now_ns))
		kill_client(soak);
	if (soak->clients_stopped < due(soak, options->stop_clients, now_ns))
		stop_client(soak, now_ns);
	if (soak->managers_killed < due(soak, options->kill_managers, now_ns))
		kill_manager(soak);
	if (soak->managers_stopped < due(soak, options->stop_managers, now_ns))
		stop_manager(soak);
	if (soak->budgets_set < due(soak, options->set_ram, now_ns))
		change_budget(soak);
}
