/* SPDX-License-Identifier: Apache-2.0 */
/* See inspect.h. */
#include "tools/inspect/inspect.h"

#include "base/clock.h"
#include "tools/ctl/format.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Paths and symbols are a client's own choice. */
void inspect_make_printable(char *text)
{
	for (; *text != '\0'; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}

void inspect_note(struct inspect *inspect, const char *format, ...)
{
	char text[sizeof inspect->note[0]];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	inspect_make_printable(text);
	for (uint32_t i = 0; i < inspect->note_count; i++)
		if (strcmp(inspect->note[i], text) == 0)
			return;
	if (inspect->note_count < INSPECT_NOTES_MAX)
		(void)snprintf(inspect->note[inspect->note_count++], sizeof text, "%s", text);
}

json_t *inspect_report_new(struct inspect *inspect)
{
	uint64_t lost[EVENT_LOST_KINDS] = {0};
	json_t *notes = json_array();

	if (inspect->programs != NULL)
		programs_lost(inspect->programs, lost);
	for (uint32_t i = 0; i < inspect->note_count; i++)
		(void)json_array_append_new(notes, json_string(inspect->note[i]));
	return json_pack("{s:s, s:I, s:s?, s:f, s:{s:I, s:I, s:I}, s:o}", "verb", inspect->verb->name, "manager",
			 (json_int_t)inspect->subject.manager[0], "socket", json_string_value(json_object_get(inspect->subject.status, "socket")),
			 "seconds", (double)(cnre_clock_now_ns() - inspect->started_ns) / 1e9, "lost", "records",
			 (json_int_t)lost[EVENT_LOST_RECORDS], "read_bytes", (json_int_t)lost[EVENT_LOST_READ_BYTES], "leases",
			 (json_int_t)lost[EVENT_LOST_LEASES], "notes", notes);
}

void inspect_print_head(FILE *out, const json_t *report)
{
	fprintf(out, "manager %lld  %.1f s\n", (long long)json_integer_value(json_object_get(report, "manager")),
		json_real_value(json_object_get(report, "seconds")));
}

void inspect_print_notes(FILE *out, const json_t *report)
{
	const json_t *lost = json_object_get(report, "lost"), *note;
	long long records = json_integer_value(json_object_get(lost, "records"));
	char bytes[FORMAT_BYTES];
	size_t i;

	if (records > 0)
		fprintf(out, "\n%lld events were lost, with %s of reads: the ring was full: what is above is too little\n", records,
			format_bytes((uint64_t)json_integer_value(json_object_get(lost, "read_bytes")), bytes));
	json_array_foreach (json_object_get(report, "notes"), i, note)
		fprintf(out, "%snote: %s\n", i == 0 ? "\n" : "", json_string_value(note));
}
