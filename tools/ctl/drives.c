/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl drives: which drives hold the checkpoints, how well they are, and who read how much. */
#include "tools/ctl/verb.h"

#include "tools/ctl/format.h"

#include <inttypes.h>
#include <string.h>

static const char *const error_kinds[] = {"io", "short", "gone", "digest", "timeout"};

static const char *speed_of(const json_t *drive, char text[FORMAT_BYTES])
{
	const json_t *value = json_object_get(drive, "bandwidth");

	if (!json_is_number(value))
		return "-";
	(void)snprintf(text, FORMAT_BYTES, "%.1f MB/s", json_number_value(value) / 1e6);
	return text;
}

static uint64_t count_errors(struct fields *fields, const json_t *errors)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof error_kinds / sizeof error_kinds[0]; i++)
		sum += fields_number(fields, errors, error_kinds[i]);
	return sum;
}

static void print_errors(FILE *out, struct fields *fields, const json_t *errors)
{
	const char *separator = "           errors: ";

	for (size_t i = 0; i < sizeof error_kinds / sizeof error_kinds[0]; i++) {
		uint64_t count = fields_number(fields, errors, error_kinds[i]);

		if (count == 0)
			continue;
		fprintf(out, "%s%" PRIu64 " %s", separator, count, error_kinds[i]);
		separator = ", ";
	}
	fputc('\n', out);
}

/* What is out of the ordinary has a line of its own. */
static void print_trouble(FILE *out, struct fields *fields, const json_t *drive)
{
	const char *state = fields_string(fields, drive, "state");
	const json_t *reason = json_object_get(drive, "reason"), *since = json_object_get(drive, "state_s");
	const json_t *advice = json_object_get(drive, "do");
	uint64_t files = fields_number(fields, drive, "files_degraded");
	char text[FORMAT_BYTES];

	if (strcmp(state, "ok") != 0 && json_is_number(since))
		fprintf(out, "           %s for %s%s%s\n", state, format_seconds(json_number_value(since), text),
			json_is_string(reason) ? ": " : "", json_is_string(reason) ? json_string_value(reason) : "");
	if (files > 0)
		fprintf(out, "           %" PRIu64 " files are not read while another replica is good\n", files);
	if (count_errors(fields, fields_object(fields, drive, "errors")) > 0)
		print_errors(out, fields, fields_object(fields, drive, "errors"));
	if (json_is_string(advice))
		fprintf(out, "       do  %s\n", json_string_value(advice));
}

static void print_drive(FILE *out, struct fields *fields, const json_t *drive)
{
	const json_t *name = json_object_get(drive, "name");
	char bytes[FORMAT_BYTES], speed[FORMAT_BYTES], share[4][FORMAT_BYTES], average[FORMAT_BYTES], p99[FORMAT_BYTES];
	char errors[FORMAT_BYTES], files[FORMAT_BYTES];

	fprintf(out, "%-10s %-8s %-8s %8s %10s %8s %12s %6" PRIu64 " %10s %10s %8s %9s %8s %8s\n",
		json_is_string(name) ? json_string_value(name) : fields_string(fields, drive, "device"),
		fields_string(fields, drive, "role"), fields_string(fields, drive, "state"), format_share_of(drive, "weight", share[0]),
		format_bytes(fields_number(fields, drive, "bytes"), bytes), format_share_of(drive, "share", share[1]),
		speed_of(drive, speed), fields_number(fields, drive, "in_flight"),
		format_average(fields_real(fields, drive, "read_s"), fields_number(fields, drive, "reads"), average),
		format_seconds_of(drive, "read_p99_s", p99),
		format_count(count_errors(fields, fields_object(fields, drive, "errors")), errors),
		format_share_of(drive, "coverage", share[2]), format_share_of(drive, "coverage_used", share[3]),
		format_count(fields_number(fields, drive, "files"), files));
}

static void print_summary(FILE *out, struct fields *fields, const json_t *answer)
{
	uint64_t failovers = fields_number(fields, answer, "failovers");
	char text[3][FORMAT_BYTES];

	fprintf(out, "read       %s since the manager started, %s by managers before it\n",
		format_bytes(fields_number(fields, answer, "bytes_read") - fields_number(fields, answer, "bytes_before"), text[0]),
		format_bytes(fields_number(fields, answer, "bytes_before"), text[1]));
	if (!fields_boolean(fields, answer, "replicated"))
		fprintf(out, "replicas   none: with --mirror DIR another drive shares the reads and stands in for one that fails\n");
	else
		fprintf(out, "weights    %s\n", fields_string(fields, answer, "weights"));
	if (failovers > 0)
		fprintf(out, "failovers  %s, the last in %s, the longest in %s\n", format_count(failovers, text[0]),
			format_seconds(fields_real(fields, answer, "failover_last_s"), text[1]),
			format_seconds(fields_real(fields, answer, "failover_most_s"), text[2]));
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *drive;
	size_t i;

	print_summary(out, fields, answer);
	fprintf(out, "\n%-10s %-8s %-8s %8s %10s %8s %12s %6s %10s %10s %8s %9s %8s %8s\n", "DRIVE", "ROLE", "STATE", "WEIGHT",
		"READ", "SHARE", "SPEED", "OUT", "TIME/READ", "P99", "ERRORS", "HOLDS", "OF USES", "FILES");
	json_array_foreach (fields_array(fields, answer, "drives"), i, drive) {
		print_drive(out, fields, drive);
		fprintf(out, "           %s\n", fields_string(fields, drive, "directory"));
		print_trouble(out, fields, drive);
	}
}

const struct verb verb_drives = {
	.name = "drives",
	.arguments = "",
	.summary = "each drive: what it holds and reads, how fast it is, and whether it is well",
	.request = verb_request_bare,
	.print = print,
};
