/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the soak. */
#include "tests/soak/soak.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	size_t field;
	const char *sentence;
} numbers[] = {
	{"seconds", offsetof(struct soak_options, seconds), "how long [60]"},
	{"clients", offsetof(struct soak_options, clients), "client processes [4]"},
	{"threads", offsetof(struct soak_options, threads), "threads of each [2]"},
	{"experts", offsetof(struct soak_options, experts), "experts of a layer [32, more for many clients]"},
	{"seed", offsetof(struct soak_options, seed), "of every choice [1]"},
	{"kill-clients", offsetof(struct soak_options, kill_clients),
	 "SIGKILL random clients, so often in the whole run [0]"},
	{"kill-managers", offsetof(struct soak_options, kill_managers),
	 "SIGKILL the manager; needs its keeper; the run takes 0.5 s each at least [0]"},
	{"stop-clients", offsetof(struct soak_options, stop_clients), "SIGSTOP random clients for up to 0.3 s [0]"},
	{"stop-managers", offsetof(struct soak_options, stop_managers), "SIGSTOP the manager for up to 0.1 s [0]"},
	{"set-ram", offsetof(struct soak_options, set_ram), "lower the budget and raise it again [0]"},
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0], FITS = 100, VERBOSE, JSON, MANAGER, HELP };

static void print_help(void)
{
	(void)printf("soak: honest clients of a real manager, disturbed; 0 if nothing failed and nothing was lost\n\n");
	for (int i = 0; i < NUMBERS; i++)
		(void)printf("  --%s N\n      %s\n", numbers[i].name, numbers[i].sentence);
	(void)printf("  --fits\n      the budget holds every expert: then nothing is read twice\n"
		     "  --json FILE\n      results as JSON\n"
		     "  --manager ARGUMENT\n      one more argument of cnre-managerd; may be repeated\n"
		     "  --verbose\n      every kill\n");
}

static int parse_number(const char *text, uint32_t *ret_number)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end != '\0' || value > 1000000)
		return -1;
	*ret_number = (uint32_t)value;
	return 0;
}

static int take(struct soak_options *options, int option, const char *argument)
{
	if (option < NUMBERS)
		return parse_number(argument, (uint32_t *)((char *)options + numbers[option].field));
	if (option == FITS)
		options->fits = 1;
	else if (option == VERBOSE)
		options->verbose = 1;
	else if (option == JSON)
		options->json = argument;
	else if (option == MANAGER && options->manager_count < sizeof options->manager / sizeof options->manager[0])
		options->manager[options->manager_count++] = argument;
	else
		return -1;
	return 0;
}

static int check(struct soak_options *options)
{
	/* So that the reservations of all, those of the just killed, and as much again to choose from fit the budget. */
	uint32_t least = (options->clients + 4) * options->threads * SOAK_BATCH / 3;

	if (options->experts < least)
		options->experts = least;
	if (options->seconds > 0 && options->clients > 0 && options->clients <= SOAK_CLIENTS_MAX &&
	    options->threads > 0 && options->threads <= SOAK_THREADS_MAX && options->experts <= 4096)
		return 0;
	(void)fprintf(stderr, "soak: 1 to %u clients, 1 to %u threads, at most 4096 experts, and at least one second\n",
		      SOAK_CLIENTS_MAX, SOAK_THREADS_MAX);
	return -1;
}

int soak_options_parse(struct soak_options *options, int argc, char **argv)
{
	struct option table[NUMBERS + 6] = {{0}};
	int option;

	*options = (struct soak_options){.seconds = 60, .clients = 4, .threads = 2, .experts = 32, .seed = 1};
	for (int i = 0; i < NUMBERS; i++)
		table[i] = (struct option){numbers[i].name, required_argument, NULL, i};
	table[NUMBERS] = (struct option){"fits", no_argument, NULL, FITS};
	table[NUMBERS + 1] = (struct option){"verbose", no_argument, NULL, VERBOSE};
	table[NUMBERS + 2] = (struct option){"json", required_argument, NULL, JSON};
	table[NUMBERS + 3] = (struct option){"manager", required_argument, NULL, MANAGER};
	table[NUMBERS + 4] = (struct option){"help", no_argument, NULL, HELP};
	while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (option == HELP) {
			print_help();
			return 1;
		}
		if (option == '?' || take(options, option, optarg) < 0)
			return -1;
	}
	return optind < argc ? -1 : check(options);
}
