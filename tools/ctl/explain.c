/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl explain: what limits throughput now, from two samples; the judgement is explain_verdict.c's. */
#include "tools/ctl/explain_verdict.h"
#include "tools/ctl/format.h"
#include "tools/ctl/verb.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS 3.0 /* between the samples, if nothing else is said */
#define SECONDS_MIN 0.1
#define SECONDS_MAX 3600.0

static int takes_option(int argc, char *const *argv, const char *name)
{
	(void)argc;
	(void)argv;
	return strcmp(name, "--seconds") == 0;
}

static int parse_seconds(int argc, char *const *argv, double *ret_seconds, char message[CTL_MESSAGE_BYTES])
{
	*ret_seconds = SECONDS;
	for (int i = 1; i < argc; i += 2) {
		char *end;

		if (strcmp(argv[i], "--seconds") != 0 || i + 1 == argc) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: takes only --seconds N", argv[i]);
			return -EINVAL;
		}
		*ret_seconds = strtod(argv[i + 1], &end);
		if (end == argv[i + 1] || *end != '\0' || !(*ret_seconds >= SECONDS_MIN && *ret_seconds <= SECONDS_MAX)) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "--seconds %.32s: seconds from 0.1 to 3600", argv[i + 1]);
			return -EINVAL;
		}
	}
	return 0;
}

/* Only looks whether the words are right: gather asks. */
static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	double seconds;
	int r = parse_seconds(argc, argv, &seconds, message);

	if (r < 0)
		return r;
	*ret_request = json_pack("{s:s}", "verb", "stats");
	return *ret_request == NULL ? -ENOMEM : 0;
}

/* ---- the answer ---- */

static json_t *rate(double what, double seconds)
{
	return json_real(what / seconds);
}

static json_t *average(double seconds, uint64_t count)
{
	return count == 0 ? json_null() : json_real(seconds / (double)count);
}

static json_t *describe_drives(const struct explain_sample *before, const struct explain_sample *after, double seconds)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < after->drive_count && i < before->drive_count; i++) {
		const struct explain_drive *now = &after->drive[i], *then = &before->drive[i];
		uint64_t reads = now->reads > then->reads ? now->reads - then->reads : 0;
		uint64_t bytes = now->bytes > then->bytes ? now->bytes - then->bytes : 0;

		(void)json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:I}", "name", now->name, "state", now->state,
							    "bytes_s", rate((double)bytes, seconds), "read_s",
							    average(now->read_s - then->read_s, reads), "in_flight",
							    (json_int_t)now->in_flight));
	}
	return list;
}

static json_t *describe(const struct explain_sample *before, const struct explain_sample *after,
			const struct explain_verdict *verdict)
{
	double s = verdict->seconds;

	return json_pack(
		"{s:s, s:s, s:s, s:f, s:I, s:f, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, "
		"s:o, s:o, s:o}",
		"limit", explain_limit_name(verdict->limit), "why", verdict->why, "do", verdict->advice, "seconds", s, "clients",
		(json_int_t)verdict->clients, "waiting", verdict->waiting, "waiting_double_ram",
		verdict->double_ram < 0 ? json_null() : json_real(verdict->double_ram), "waiting_double_drive",
		verdict->double_drive, "lookups_s", rate((double)verdict->accesses, s), "misses_s", rate((double)verdict->misses, s),
		"loads_s", rate((double)verdict->loads, s), "evictions_s", rate((double)verdict->evictions, s), "bytes_s",
		rate((double)verdict->bytes, s), "felt_miss_s", average(verdict->felt_wait_s, verdict->misses), "service_s",
		average(verdict->service_s, verdict->loads), "loads_in_flight", (json_int_t)after->loads_in_flight, "loads_queued",
		(json_int_t)after->loads_queued, "resident_bytes", (json_int_t)after->resident_bytes, "budget_bytes",
		(json_int_t)after->budget_bytes, "all_bytes", (json_int_t)after->all_bytes, "miss_share_now",
		after->curve_known ? json_real(after->miss_share_now) : json_null(), "miss_share_double",
		after->curve_known ? json_real(after->miss_share_double) : json_null(), "drives",
		describe_drives(before, after, s), "vram", verdict->vram[0] == '\0' ? json_null() : json_string(verdict->vram),
		"vram_hits_s", rate((double)verdict->vram_hits, s), "vram_uploads_s", rate((double)verdict->vram_uploads, s));
}

static int judge(const struct verb_asker *asker, double seconds, struct explain_sample sample[2], json_t **ret_answer,
		 char message[CTL_MESSAGE_BYTES])
{
	struct explain_verdict verdict;
	int r = explain_sample_take(asker, &sample[0], message);

	if (r == 0)
		r = asker->pause(asker->context, seconds);
	if (r == 0)
		r = explain_sample_take(asker, &sample[1], message);
	if (r < 0)
		return r;
	r = explain_judge(&sample[0], &sample[1], &verdict);
	if (r < 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "the manager was restarted meanwhile: ask again");
		return r;
	}
	*ret_answer = describe(&sample[0], &sample[1], &verdict);
	return *ret_answer == NULL ? -ENOMEM : 0;
}

static int gather(int argc, char *const *argv, const struct verb_asker *asker, json_t **ret_answer,
		  char message[CTL_MESSAGE_BYTES])
{
	struct explain_sample *sample;
	double seconds;
	int r = parse_seconds(argc, argv, &seconds, message);

	if (r < 0)
		return r;
	sample = calloc(2, sizeof *sample); /* large for a stack */
	r = sample == NULL ? -ENOMEM : judge(asker, seconds, sample, ret_answer, message);
	free(sample);
	return r;
}

/* ---- for a person ---- */

static void print_drive(FILE *out, struct fields *fields, const json_t *drive)
{
	char text[FORMAT_BYTES];

	fprintf(out, "           %-16.40s %10.1f MB/s  %10s a read  %3" PRIu64 " out  %s\n", fields_string(fields, drive, "name"),
		fields_real(fields, drive, "bytes_s") / 1e6, format_seconds_of(drive, "read_s", text),
		fields_number(fields, drive, "in_flight"), fields_string(fields, drive, "state"));
}

/* Only where it served something, or should have. */
static void print_vram(FILE *out, struct fields *fields, const json_t *answer)
{
	double hits = fields_real(fields, answer, "vram_hits_s"), uploads = fields_real(fields, answer, "vram_uploads_s");
	const char *wrong = json_string_value(json_object_get(answer, "vram"));

	if (hits > 0 || uploads > 0)
		fprintf(out, "vram       %.1f hits/s, %.1f uploads/s\n", hits, uploads);
	if (wrong != NULL)
		fprintf(out, "vram       %s\n", wrong);
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *now = json_object_get(answer, "miss_share_now"), *twice = json_object_get(answer, "miss_share_double"), *drive;
	char text[3][FORMAT_BYTES];
	size_t i;

	fprintf(out, "limit      %s\nwhy        %s\ndo         %s\n\n", fields_string(fields, answer, "limit"),
		fields_string(fields, answer, "why"), fields_string(fields, answer, "do"));
	fprintf(out, "in         %.1f s: %" PRIu64 " clients, %.1f lookups/s, %.1f misses/s, %.1f loads/s, %.1f evictions/s\n",
		fields_real(fields, answer, "seconds"), fields_number(fields, answer, "clients"),
		fields_real(fields, answer, "lookups_s"), fields_real(fields, answer, "misses_s"),
		fields_real(fields, answer, "loads_s"), fields_real(fields, answer, "evictions_s"));
	fprintf(out, "waits      %.1f %% of the clients' time; %s felt a miss, %s a read\n", fields_real(fields, answer, "waiting") * 100,
		format_seconds_of(answer, "felt_miss_s", text[0]), format_seconds_of(answer, "service_s", text[1]));
	fprintf(out, "memory     %s of %s, all experts %s", format_bytes(fields_number(fields, answer, "resident_bytes"), text[0]),
		format_bytes(fields_number(fields, answer, "budget_bytes"), text[1]),
		format_bytes(fields_number(fields, answer, "all_bytes"), text[2]));
	if (json_is_number(now) && json_is_number(twice))
		fprintf(out, "; LRU would miss %.1f %%, with twice the slots %.1f %%", json_number_value(now) * 100,
			json_number_value(twice) * 100);
	fprintf(out, "\ndrives     %.1f MB/s\n", fields_real(fields, answer, "bytes_s") / 1e6);
	json_array_foreach (fields_array(fields, answer, "drives"), i, drive)
		print_drive(out, fields, drive);
	print_vram(out, fields, answer);
}

const struct verb verb_explain = {
	.name = "explain",
	.arguments = "[--seconds N]",
	.summary = "what limits throughput now: drives, memory or computation",
	.request = request,
	.gather = gather,
	.takes_option = takes_option,
	.print = print,
};
