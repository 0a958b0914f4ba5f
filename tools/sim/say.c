/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the verbs; see say.h. */
#include "tools/sim/say.h"

#include "tools/sim/verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

int sim_say(const char *verb, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "cnre-sim: %s: ", verb);
	vfprintf(stderr, format, arguments);
	putc('\n', stderr);
	va_end(arguments);
	return status;
}

int sim_say_error(const char *verb, int error)
{
	return sim_say(verb, SIM_FAILED, "%s", strerror(-error));
}

static int show_help(const char *verb, enum sim_verb number)
{
	printf("usage: cnre-sim %s [OPTION...]\n\n", verb);
	sim_options_describe(stdout, number);
	puts("\nSee cnre-sim(1).");
	return fflush(stdout) == 0 ? SIM_DONE : SIM_FAILED;
}

/* A recording with holes is replayed, for most of it may be there; nobody should take it for the whole. */
static void warn_of_losses(const char *verb, const struct sim_study *study)
{
	for (uint32_t i = 0; i < study->trace_count + study->train_count; i++)
		if (study->trace[i].lost > 0)
			(void)sim_say(verb, 0, "%s: warning: %llu records were lost when it was recorded: a replay of the rest",
				      study->trace[i].path, (unsigned long long)study->trace[i].lost);
}

int sim_begin(int argc, char **argv, enum sim_verb verb, struct sim_options *ret_options, struct sim_study *ret_study)
{
	char message[SIM_MESSAGE_BYTES] = "out of memory";
	int status = -1, r = sim_options_parse(argc, argv, verb, ret_options, message, sizeof message);

	if (r < 0)
		return sim_say(argv[0], r == -EINVAL ? SIM_USAGE : SIM_FAILED, "%s", message);
	if (ret_options->wants_help) {
		status = show_help(argv[0], verb);
	} else {
		r = sim_study_open(ret_study, ret_options, message, sizeof message);
		if (r < 0)
			status = sim_say(argv[0], r == -EEXIST || r == -EDOM ? SIM_USAGE : SIM_FAILED, "%s", message);
		else
			warn_of_losses(argv[0], ret_study);
	}
	if (status >= 0)
		sim_options_close(ret_options);
	return status;
}

void sim_end(struct sim_options *options, struct sim_study *study)
{
	sim_study_close(study);
	sim_options_close(options);
}

void sim_warn(const char *verb, const struct sim_study_arm *arm)
{
	if (sim_arm_is_below_cycle(&arm->arm, &arm->model))
		(void)sim_say(verb, 0,
			      "%s: warning: a global pool smaller than one token's lookups (%u layers of top-%u) misses "
			      "nearly always: make it larger, or use --pool layer or --policy cost",
			      arm->arm.policy, arm->model.geometry->layer_count, arm->model.geometry->top_k);
}
