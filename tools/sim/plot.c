/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cnre-sim plot`: a sweep as pictures. gnuplot reads its script and all numbers from a pipe, in the folder the
 * pictures are for, so that no path of the user's is ever part of a script.
 */
#include "tools/sim/say.h"
#include "tools/sim/sweep.h"
#include "tools/sim/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char verb[] = "plot";

/* ---- the script ---- */

static double percent_of_all(const struct sim_study *study, const struct sim_study_arm *arm)
{
	double all = 0;

	for (uint32_t i = 0; i < study->geometry->layer_count; i++)
		all += (double)study->geometry->experts[i] * (double)sim_arm_object_bytes(&arm->arm, &arm->model, i);
	return 100 * (double)sim_arm_budget(&arm->arm, &arm->model) / all;
}

/* A block of lines for each policy: size in percent, misses an access, felt wait of a token. */
static void write_sweep(FILE *to, const struct sim_sweep *sweep, const struct sim_study *study)
{
	uint32_t policies = study->options->policy_count;

	fputs("$sweep << END\n", to);
	for (uint32_t policy = 0; policy < policies; policy++) {
		for (uint32_t i = policy; i < sweep->count; i += policies) {
			const struct sim_counts *counts = &sweep->result[i].counts;

			fprintf(to, "%.6g %.6g %.6g\n", percent_of_all(study, &sweep->arm[i]),
				counts->accesses == 0 ? 0 : (double)counts->misses / (double)counts->accesses,
				counts->token_mean_us);
		}
		fputs("\n\n", to);
	}
	fputs("END\n", to);
}

/* 1: a fixed share of its own for every layer; the ceilings of a soft pool are more than there is. */
static int has_shares(const struct sim_study_arm *arm, const struct sim_counts *counts)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < counts->layer_count; i++)
		bytes += counts->layer[i].capacity * sim_arm_object_bytes(&arm->arm, &arm->model, i);
	return bytes <= sim_arm_budget(&arm->arm, &arm->model);
}

/* Likewise of one size: number of the layer, slots of its own or, where room is shared, what it had in the end. */
static void write_layers(FILE *to, const struct sim_sweep *sweep, const struct sim_study *study, uint32_t first)
{
	fputs("$layers << END\n", to);
	for (uint32_t i = first; i < first + study->options->policy_count; i++) {
		const struct sim_counts *counts = &sweep->result[i].counts;
		int shares = has_shares(&sweep->arm[i], counts);

		for (uint32_t k = 0; k < counts->layer_count; k++)
			fprintf(to, "%u %u\n", study->geometry->number[k],
				shares ? counts->layer[k].capacity : counts->layer[k].resident);
		fputs("\n\n", to);
	}
	fputs("END\n", to);
}

static void write_picture(FILE *to, const struct sim_options *options, const char *name, const char *axes,
			  const char *block, const char *columns)
{
	static const char *const terminals[][2] = {{"svg size 800,500", "svg"}, {"png size 800,500", "png"}};

	for (size_t i = 0; i < sizeof terminals / sizeof terminals[0]; i++) {
		fprintf(to, "set terminal %s\nset output '%s.%s'\n%s\nplot ", terminals[i][0], name, terminals[i][1],
			axes);
		for (uint32_t policy = 0; policy < options->policy_count; policy++)
			fprintf(to, "%s%s index %u using %s with linespoints title '%s'", policy > 0 ? ", " : "", block,
				policy, columns, options->policy[policy]);
		fputs("\nunset output\n", to);
	}
}

static void write_script(FILE *to, const struct sim_sweep *sweep, const struct sim_study *study)
{
	const struct sim_options *options = study->options;
	uint32_t middle = options->capacity_count / 2 * options->policy_count;
	char axes[256];

	write_sweep(to, sweep, study);
	write_layers(to, sweep, study, middle);
	fputs("set grid\nset yrange [0:]\nset key outside\nset encoding utf8\n", to);
	write_picture(to, options, "misses", "set xlabel 'cache, % of all experts'\nset ylabel 'misses per lookup'",
		      "$sweep", "1:2");
	write_picture(to, options, "felt", "set xlabel 'cache, % of all experts'\nset ylabel 'felt wait, us per token'",
		      "$sweep", "1:3");
	(void)snprintf(axes, sizeof axes, "set xlabel 'layer'\nset ylabel 'slots, with %.4g %% of all experts'",
		       percent_of_all(study, &sweep->arm[middle]));
	write_picture(to, options, "layers", axes, "$layers", "1:2");
}

/* ---- gnuplot ---- */

/* What it reads is the returned end; -errno, -ENOENT: there is no gnuplot. */
static int start_gnuplot(const char *folder, pid_t *ret_pid)
{
	char *const arguments[] = {(char[]){"gnuplot"}, (char[]){"-"}, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	r = -posix_spawn_file_actions_init(&actions);
	if (r < 0)
		goto close_ends;
	r = -posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
	if (r == 0)
		r = -posix_spawn_file_actions_addchdir_np(&actions, folder);
	if (r == 0)
		r = -posix_spawnp(ret_pid, "gnuplot", &actions, NULL, arguments, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
close_ends:
	(void)close(ends[0]);
	if (r == 0)
		return ends[1];
	(void)close(ends[1]);
	return r;
}

/* 0, or -EIO: gnuplot did not take or like the script, and said why itself. */
static int end_gnuplot(FILE *to, pid_t pid)
{
	int wrote = fclose(to), status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return wrote == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int draw(const struct sim_sweep *sweep, const struct sim_study *study)
{
	pid_t pid;
	FILE *to;
	int fd = start_gnuplot(study->options->out, &pid), r;

	if (fd == -ENOENT)
		return sim_say(verb, SIM_FAILED, "gnuplot is not installed: apt-get install gnuplot-nox");
	if (fd < 0)
		return sim_say(verb, SIM_FAILED, "gnuplot: %s", strerror(-fd));
	(void)signal(SIGPIPE, SIG_IGN); /* if it dies, the write says so */
	to = fdopen(fd, "w");
	if (to == NULL) {
		(void)close(fd);
		(void)waitpid(pid, NULL, 0);
		return sim_say_error(verb, -ENOMEM);
	}
	write_script(to, sweep, study);
	r = end_gnuplot(to, pid);
	if (r < 0)
		return sim_say(verb, SIM_FAILED, "gnuplot failed; it says why above");
	printf("%s/: misses.svg misses.png felt.svg felt.png layers.svg layers.png\n", study->options->out);
	return SIM_DONE;
}

/* ---- the verb ---- */

/* Sizes for a curve where none were asked for, in percent; of a small model the smallest would hold no object. */
static void choose_sizes(struct sim_options *options, const struct sim_study *study)
{
	static const double percent[] = {2, 5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 100};

	for (size_t i = 0; i < sizeof percent / sizeof percent[0]; i++)
		if (study->geometry->object_count * percent[i] >= 100)
			options->capacity[options->capacity_count++] =
				(struct sim_capacity_option){.capacity.unit = SIM_OBJECTS, .percent = percent[i]};
}

/* Before minutes of replays. */
static int make_folder(const char *folder)
{
	struct stat status;

	if (mkdir(folder, 0777) == 0)
		return 0;
	if (errno != EEXIST)
		return sim_say(verb, SIM_FAILED, "--out %.200s: %s", folder, strerror(errno));
	if (stat(folder, &status) < 0)
		return sim_say(verb, SIM_FAILED, "--out %.200s: %s", folder, strerror(errno));
	if (!S_ISDIR(status.st_mode))
		return sim_say(verb, SIM_FAILED, "--out %.200s: not a directory", folder);
	return 0;
}

int sim_plot(int argc, char **argv)
{
	struct sim_options options;
	struct sim_study study;
	struct sim_sweep sweep;
	int r, status = sim_begin(argc, argv, SIM_PLOT, &options, &study);

	if (status >= 0)
		return status;
	if (options.capacity_count == 0)
		choose_sizes(&options, &study);
	status = make_folder(options.out);
	if (status == 0) {
		r = sim_sweep_open(&sweep, &study);
		if (r == -EINVAL)
			status = sim_say(verb, SIM_USAGE, "a cache of one of these sizes would hold no object");
		else
			status = r < 0 ? sim_say_error(verb, r) : draw(&sweep, &study);
		if (r == 0)
			sim_sweep_close(&sweep);
	}
	sim_end(&options, &study);
	return status;
}
