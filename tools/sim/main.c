/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-sim: which objects are worth their bytes, answered by replaying recorded routing against the policies that the
 * manager runs. This file dispatches; each verb owns its output and exit status.
 */
#include "tools/sim/convert.h"
#include "tools/sim/generate.h"
#include "tools/sim/verbs.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} verbs[] = {
	{"run", sim_run, "replay traces against policies, side by side"},
	{"sweep", sim_sweep, "the same for several sizes of the cache"},
	{"gate", sim_gate, "whether a candidate beats a baseline on held-out traces: exit status 0 or 1"},
	{"plot", sim_plot, "miss curves, felt-wait curves and capacities as SVG and PNG"},
	{"convert", sim_convert, "a trace in another format"},
	{"generate", sim_generate, "synthetic traces"},
	{NULL, NULL, NULL},
};

static int print_usage(FILE *out, int status)
{
	fputs("usage: cnre-sim VERB [OPTION...]\n\n", out);
	for (const struct verb *verb = verbs; verb->name != NULL; verb++)
		fprintf(out, "  %-10s %s\n", verb->name, verb->summary);
	fputs("\ncnre-sim VERB --help lists the options of a verb; --version. See cnre-sim(1).\n", out);
	return fflush(out) == 0 ? status : SIM_FAILED;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return print_usage(stderr, SIM_USAGE);
	if (strcmp(argv[1], "--help") == 0)
		return print_usage(stdout, SIM_DONE);
	if (strcmp(argv[1], "--version") == 0) {
		printf("cnre-sim %s\n", CNRE_VERSION);
		return SIM_DONE;
	}
	for (const struct verb *verb = verbs; verb->name != NULL; verb++)
		if (strcmp(argv[1], verb->name) == 0)
			return verb->run(argc - 1, argv + 1);
	fprintf(stderr, "cnre-sim: %.64s: no such verb: see cnre-sim --help\n", argv[1]);
	return SIM_USAGE;
}
