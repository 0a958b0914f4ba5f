/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and sentences of iobench; see iobench_report.h. */
#include "tools/ctl/iobench_report.h"

#include "base/check.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define SENTENCE_BYTES 2048
#define READS_IN_FLIGHT_MIN 2u

/* ---- verdict ---- */

static void add_sentence(json_t *verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A name that is no UTF-8 is left out of the sentence rather than the sentence of the verdict. */
static void add_sentence(json_t *verdict, const char *format, ...)
{
	char text[SENTENCE_BYTES];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	(void)json_array_append_new(verdict, json_string(text));
}

static void judge_drive(json_t *verdict, const struct iobench *bench, const struct iobench_drive *drive,
			const char *name)
{
	const struct iobench_point *point = &drive->point[drive->chosen];
	char block[FORMAT_BYTES];

	add_sentence(verdict, "%.600s: %s, %" PRIu32 " blocks of %s in flight: %.3f GB/s, %.3g ms a block", name,
		     point->is_direct ? "direct" : "through the page cache", point->threads,
		     format_bytes(point->block_bytes, block), iobench_rate(&point->measured) / 1e9,
		     iobench_ms_per_block(&point->measured));
	if (drive->file.direct_fd < 0)
		add_sentence(verdict, "%.600s: the file system refuses direct reads: %s", name,
			     strerror(-drive->file.direct_error));
	if (drive->same_disk_as >= 0)
		add_sentence(verdict, "%.600s: the same disk as %.600s (%s): a copy there makes nothing faster", name,
			     bench->drive[drive->same_disk_as].target, drive->file.disk_name);
}

static void judge_together(json_t *verdict, const struct iobench *bench)
{
	double percent;

	if (bench->together_count < 2)
		return;
	percent = 100.0 * bench->together_rate / bench->together_sum;
	add_sentence(verdict, "%" PRIu32 " disks together: %.3f GB/s, %.0f %% of the sum%s", bench->together_count,
		     bench->together_rate / 1e9, percent,
		     percent < IOBENCH_HINDERED_PERCENT ? ": they hinder one another, so look for what they share"
							: "");
}

static const struct iobench_point *chosen_of(const struct iobench *bench, uint32_t index)
{
	return &bench->drive[index].point[bench->drive[index].chosen];
}

/*
 * The settings of a manager for these drives. Direct is its default; through the page cache it reads all or none, so that is
 * for drives that all want it. How many experts are read at once follows only from blocks as large as one; and while one is
 * completed the next should be on its way.
 */
static void write_settings(const struct iobench *bench, char text[SENTENCE_BYTES])
{
	uint32_t in_flight = READS_IN_FLIGHT_MIN, buffered = 0;
	size_t used;

	for (uint32_t i = 0; i < bench->drive_count; i++) {
		buffered += !chosen_of(bench, i)->is_direct;
		if (chosen_of(bench, i)->threads > in_flight)
			in_flight = chosen_of(bench, i)->threads;
	}
	used = (size_t)snprintf(text, SENTENCE_BYTES, "--direct %s", buffered == bench->drive_count ? "no" : "auto");
	if (bench->is_for_block)
		used += (size_t)snprintf(text + used, SENTENCE_BYTES - used, " --reads-in-flight %" PRIu32, in_flight);
	for (uint32_t i = 0; bench->drive_count > 1 && i < bench->drive_count; i++)
		used += (size_t)snprintf(text + used, SENTENCE_BYTES - used, "%s%.3g",
					 i == 0 ? " --drive-weights " : ":",
					 iobench_rate(&chosen_of(bench, i)->measured) / 1e9);
}

/* ---- answer ---- */

static json_t *describe_point(const struct iobench_point *point)
{
	return json_pack("{s:I, s:I, s:b, s:I, s:I, s:f, s:f, s:f}", "block_bytes", (json_int_t)point->block_bytes,
			 "threads", (json_int_t)point->threads, "direct", point->is_direct, "blocks",
			 (json_int_t)point->measured.blocks, "bytes", (json_int_t)point->measured.bytes, "seconds",
			 (double)point->measured.elapsed_ns / 1e9, "gb_per_s", iobench_rate(&point->measured) / 1e9,
			 "ms_per_block", iobench_ms_per_block(&point->measured));
}

/* A path need not be UTF-8, and JSON must be: such a drive has its number for a name. */
static json_t *name_of(const char *text, uint32_t index)
{
	json_t *name = json_string(text);

	return name != NULL ? name : json_sprintf("drive %" PRIu32, index);
}

static json_t *describe_drive(const struct iobench_drive *drive, uint32_t index)
{
	json_t *points = json_array();

	for (uint32_t i = 0; i < drive->point_count; i++)
		(void)json_array_append_new(points, describe_point(&drive->point[i]));
	return json_pack("{s:o, s:o, s:I, s:s, s:s, s:i, s:o, s:i}", "target", name_of(drive->target, index), "file",
			 name_of(drive->file.path, index), "file_bytes", (json_int_t)drive->file.bytes, "disk",
			 drive->file.disk_name, "direct_refused",
			 drive->file.direct_fd < 0 ? strerror(-drive->file.direct_error) : "", "same_disk_as",
			 drive->same_disk_as, "measurements", points, "chosen", drive->chosen);
}

json_t *iobench_report(const struct iobench *bench)
{
	json_t *drives = json_array(), *verdict = json_array(), *drive;
	char settings[SENTENCE_BYTES];

	for (uint32_t i = 0; i < bench->drive_count; i++) {
		drive = describe_drive(&bench->drive[i], i);
		judge_drive(verdict, bench, &bench->drive[i], json_string_value(json_object_get(drive, "target")));
		(void)json_array_append_new(drives, drive);
	}
	judge_together(verdict, bench);
	write_settings(bench, settings);
	return json_pack("{s:o, s:o, s:f, s:f, s:s}", "drives", drives, "verdict", verdict, "together_gb_per_s",
			 bench->together_rate / 1e9, "alone_gb_per_s", bench->together_sum / 1e9, "settings", settings);
}

/* ---- for a person ---- */

static void print_point(FILE *out, struct fields *fields, const json_t *point, int is_chosen)
{
	char block[FORMAT_BYTES];

	fprintf(out, "%s %9s %9" PRIu64 "  %-8s %8.3f %10.3f\n", is_chosen ? "  >" : "   ",
		format_bytes(fields_number(fields, point, "block_bytes"), block),
		fields_number(fields, point, "threads"),
		fields_boolean(fields, point, "direct") ? "direct" : "buffered", fields_real(fields, point, "gb_per_s"),
		fields_real(fields, point, "ms_per_block"));
}

static void print_drive(FILE *out, struct fields *fields, const json_t *drive)
{
	const json_t *points = fields_array(fields, drive, "measurements"), *point;
	uint64_t chosen = fields_number(fields, drive, "chosen");
	char bytes[FORMAT_BYTES];
	size_t index;

	fprintf(out, "%s: %s on %s\n", fields_string(fields, drive, "file"),
		format_bytes(fields_number(fields, drive, "file_bytes"), bytes), fields_string(fields, drive, "disk"));
	fprintf(out, "        BLOCK IN FLIGHT  WAY          GB/s   MS/BLOCK\n");
	json_array_foreach (points, index, point)
		print_point(out, fields, point, index == chosen);
	fputc('\n', out);
}

void iobench_report_print(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *drives = fields_array(fields, answer, "drives"),
		     *verdict = fields_array(fields, answer, "verdict"), *one;
	size_t index;

	json_array_foreach (drives, index, one)
		print_drive(out, fields, one);
	json_array_foreach (verdict, index, one)
		fprintf(out, "%s\n", json_is_string(one) ? json_string_value(one) : "?");
	fprintf(out, "for cnre-managerd: %s\n", fields_string(fields, answer, "settings"));
}
