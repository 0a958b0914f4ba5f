/* SPDX-License-Identifier: Apache-2.0 */
/* From any format to binary, group or route; see convert.h. */
#include "tools/sim/convert.h"

#include "base/message.h"
#include "tools/sim/file.h"
#include "tools/sim/trace.h"
#include "tools/sim/trace_write.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 1024

static const char usage[] =
	"usage: cnre-sim convert --trace IN --out OUT [options]\n"
	"\n"
	"  --trace FILE        a route, replay, csv, group or binary trace\n"
	"  --out FILE          appears when it is complete\n"
	"  --to FORMAT         binary (default), group, route; text does not keep gates, hits and who asked\n"
	"  --format FORMAT     what FILE is (default: by its first line)\n"
	"  --phase PHASE       decode, prefill, all (default), of a csv trace\n"
	"  --experts N         experts of each layer (default: the largest number + 1)\n"
	"  --temporary DIR     for rows while they are read (default: TMPDIR or /tmp)\n"
	"  --force             replace OUT\n"
	"  --progress          on standard error\n"
	"  --help\n"
	"\n"
	"example: cnre-sim convert --trace run.route.csv --phase decode --out run.trace\n";

enum {
	OPTION_TRACE = 256,
	OPTION_OUT,
	OPTION_TO,
	OPTION_FORMAT,
	OPTION_PHASE,
	OPTION_EXPERTS,
	OPTION_TEMPORARY,
	OPTION_FORCE,
	OPTION_PROGRESS,
	OPTION_HELP
};

static const struct option options_table[] = {
	{"trace", required_argument, NULL, OPTION_TRACE},
	{"out", required_argument, NULL, OPTION_OUT},
	{"to", required_argument, NULL, OPTION_TO},
	{"format", required_argument, NULL, OPTION_FORMAT},
	{"phase", required_argument, NULL, OPTION_PHASE},
	{"experts", required_argument, NULL, OPTION_EXPERTS},
	{"temporary", required_argument, NULL, OPTION_TEMPORARY},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"progress", no_argument, NULL, OPTION_PROGRESS},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

struct conversion {
	const char *trace, *out;
	enum sim_format to;
	struct sim_load load;
	int force, wants_help;
};

static void show_progress(void *context, const char *path, uint64_t done_bytes, uint64_t all_bytes)
{
	(void)context;
	(void)fprintf(stderr, "cnre-sim: %s: %u %%\n", path,
		      (unsigned)(all_bytes > 0 ? done_bytes / (all_bytes / 100 + 1) : 0));
}

static int take_phase(const char *text, unsigned *ret_phases)
{
	static const struct {
		const char *name;
		unsigned phases;
	} known[] = {{"decode", SIM_PHASE_DECODE}, {"prefill", SIM_PHASE_PREFILL}, {"all", SIM_PHASE_ALL}};
	size_t i;

	for (i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(text, known[i].name) == 0) {
			*ret_phases = known[i].phases;
			return 0;
		}
	return -EINVAL;
}

static int take_experts(const char *text, uint32_t *ret_experts)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < 1 || value > SIM_EXPERTS_MAX)
		return -EINVAL;
	*ret_experts = (uint32_t)value;
	return 0;
}

static int take_to(const char *text, enum sim_format *ret_format)
{
	enum sim_format format = SIM_FORMAT_AUTO;

	if (sim_format_parse(text, &format) < 0 ||
	    (format != SIM_FORMAT_BINARY && format != SIM_FORMAT_GROUP && format != SIM_FORMAT_ROUTE))
		return -EINVAL;
	*ret_format = format;
	return 0;
}

/* NULL, or what was expected of the value. */
static const char *take_option(struct conversion *conversion, int option, const char *text)
{
	switch (option) {
	case OPTION_TRACE:
		conversion->trace = text;
		return NULL;
	case OPTION_OUT:
		conversion->out = text;
		return NULL;
	case OPTION_TO:
		return take_to(text, &conversion->to) < 0 ? "known: binary group route" : NULL;
	case OPTION_FORMAT:
		return sim_format_parse(text, &conversion->load.format) < 0
			       ? "known: auto route replay csv group binary"
			       : NULL;
	case OPTION_PHASE:
		return take_phase(text, &conversion->load.phases) < 0 ? "known: decode prefill all" : NULL;
	case OPTION_EXPERTS:
		return take_experts(text, &conversion->load.experts) < 0 ? "expected a whole number from 1 to 65536"
									 : NULL;
	case OPTION_TEMPORARY:
		conversion->load.temporary = text;
		return NULL;
	case OPTION_FORCE:
		conversion->force = 1;
		return NULL;
	case OPTION_PROGRESS:
		conversion->load.progress = show_progress;
		return NULL;
	default:
		conversion->wants_help = 1;
		return NULL;
	}
}

static int parse(int argc, char **argv, struct conversion *conversion, char *message)
{
	int option, index = 0;
	const char *expected;

	opterr = 0;
	optind = 0; /* glibc: begin anew */
	while ((option = getopt_long(argc, argv, ":", options_table, &index)) != -1) {
		if (option == '?' || option == ':')
			return cnre_message(message, MESSAGE_BYTES, -EINVAL, "%.80s: %s", argv[optind - 1],
					    option == '?' ? "unknown option" : "needs a value");
		expected = take_option(conversion, option, optarg);
		if (expected != NULL)
			return cnre_message(message, MESSAGE_BYTES, -EINVAL, "--%s %.80s: %s",
					    options_table[index].name, optarg, expected);
	}
	if (optind < argc)
		return cnre_message(message, MESSAGE_BYTES, -EINVAL, "%.80s: unexpected argument", argv[optind]);
	if (!conversion->wants_help && (conversion->trace == NULL || conversion->out == NULL))
		return cnre_message(message, MESSAGE_BYTES, -EINVAL, "--%s is missing",
				    conversion->trace == NULL ? "trace" : "out");
	return 0;
}

/* The bytes of experts are those of a header that was read, or 1 where there was none. */
static void fill_layers(const struct sim_geometry *geometry, struct record_layer *layer)
{
	uint32_t i;

	for (i = 0; i < geometry->layer_count; i++) {
		layer[i] = (struct record_layer){geometry->number[i], geometry->experts[i], geometry->resident_bytes[i],
						 geometry->read_bytes[i]};
		if (layer[i].resident_bytes == 0)
			layer[i].resident_bytes = layer[i].read_bytes = 1;
	}
}

static int write_rows(FILE *file, enum sim_format to, const struct sim_trace *trace,
		      const struct sim_geometry *geometry)
{
	struct record_header header = {.layer_count = geometry->layer_count,
				       .top_k = geometry->top_k,
				       .resident_count = trace->resident_count,
				       .budget_bytes = trace->budget_bytes,
				       .policy = "converted",
				       .resident = trace->resident};
	struct sim_writer writer;
	uint64_t i;
	int result;

	header.layer = calloc(geometry->layer_count, sizeof header.layer[0]);
	if (header.layer == NULL)
		return -ENOMEM;
	fill_layers(geometry, header.layer);
	result = sim_writer_open(&writer, file, to, geometry, &header);
	for (i = 0; result == 0 && i < trace->row_count; i++)
		sim_writer_row(&writer, &trace->row[i], trace->object + trace->row[i].first);
	if (result == 0)
		sim_writer_close(&writer);
	free(header.layer);
	return result;
}

static int write_file(const struct conversion *conversion, const struct sim_trace *trace,
		      const struct sim_geometry *geometry, char *message)
{
	struct sim_output output = {.file = NULL};
	int result = sim_writer_check(trace, conversion->to, message, MESSAGE_BYTES);

	if (result == 0)
		result = sim_output_open(&output, conversion->out, conversion->force, message, MESSAGE_BYTES);
	if (result < 0)
		return result;
	result = write_rows(output.file, conversion->to, trace, geometry);
	if (result == 0)
		return sim_output_commit(&output, conversion->force, message, MESSAGE_BYTES);
	sim_output_abandon(&output);
	return cnre_message(message, MESSAGE_BYTES, result, "%s: %s", conversion->out, strerror(-result));
}

static int convert(const struct conversion *conversion, char *message)
{
	struct sim_geometry *geometry = NULL;
	struct sim_trace *trace = NULL;
	int result =
		sim_traces_open(&trace, &geometry, &conversion->trace, 1, &conversion->load, message, MESSAGE_BYTES);

	if (result < 0)
		return result;
	result = write_file(conversion, trace, geometry, message);
	if (result == 0) {
		(void)printf("wrote %s: %s of %s: %llu rows, %llu lookups, %llu tokens\n", conversion->out,
			     sim_format_name(conversion->to), sim_format_name(trace->format),
			     (unsigned long long)trace->row_count, (unsigned long long)trace->access_count,
			     (unsigned long long)trace->token_count);
		if (trace->lost > 0)
			(void)fprintf(stderr, "cnre-sim: %s: warning: %llu words were lost when it was recorded\n",
				      trace->path, (unsigned long long)trace->lost);
	}
	sim_traces_close(trace, 1, geometry);
	return result;
}

int sim_convert(int argc, char **argv)
{
	struct conversion conversion = {.to = SIM_FORMAT_BINARY};
	char message[MESSAGE_BYTES] = "";

	if (parse(argc, argv, &conversion, message) < 0) {
		(void)fprintf(stderr, "cnre-sim: convert: %s; see cnre-sim convert --help\n", message);
		return 2;
	}
	if (conversion.wants_help) {
		(void)fputs(usage, stdout);
		return 0;
	}
	if (convert(&conversion, message) < 0) {
		(void)fprintf(stderr, "cnre-sim: convert: %s\n", message);
		return 1;
	}
	return 0;
}
