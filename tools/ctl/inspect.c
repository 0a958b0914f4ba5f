/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl inspect: what CNRE understands of a checkpoint, without a manager; for people, from what inspect_model.c found. */
#include "tools/ctl/format.h"
#include "tools/ctl/inspect_words.h"

#include <inttypes.h>
#include <string.h>

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	struct inspect_words words;
	int r = inspect_words_parse(argc, argv, &words, message);

	if (r < 0)
		return r;
	return verb_request_bare(1, argv, ret_request, message); /* nobody is asked */
}

static int is_local(int argc, char *const *argv)
{
	(void)argc;
	(void)argv;
	return 1;
}

static int answer_here(int argc, char *const *argv, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	struct inspect_words words;
	int r = inspect_words_parse(argc, argv, &words, message);

	return r < 0 ? r : inspect_model(&words, ret_answer, message);
}

/* ---- for a person ---- */

static void print_joined(FILE *out, const json_t *words, const char *separator)
{
	const json_t *word;
	size_t i;

	json_array_foreach (words, i, word)
		fprintf(out, "%s%s", i == 0 ? "" : separator, json_string_value(word));
}

static void print_head(FILE *out, struct fields *fields, const json_t *answer)
{
	uint64_t after = fields_number(fields, answer, "rows_after");
	uint64_t least = fields_number(fields, answer, "expert_bytes_min"), most = fields_number(fields, answer, "expert_bytes_max");
	const char *state = fields_string(fields, answer, "state");
	char text[5][FORMAT_BYTES];

	fprintf(out, "%s: family %s%s, %" PRIu64 " layers", fields_string(fields, answer, "directory"),
		fields_string(fields, answer, "family"),
		fields_boolean(fields, answer, "described") ? " (described in a file)" : "",
		fields_number(fields, answer, "layers"));
	if (after > 0)
		fprintf(out, " and %" PRIu64 " after them", after);
	fprintf(out, ", up to %" PRIu64 " experts in each, %" PRIu64 " a token\n",
		fields_number(fields, answer, "experts"), fields_number(fields, answer, "top_k"));
	fprintf(out, "experts    %s; %s%s%s each, %s in all\n",
		format_count(fields_number(fields, answer, "objects"), text[0]),
		least == most ? "" : format_bytes(least, text[1]), least == most ? "" : " to ", format_bytes(most, text[2]),
		format_bytes(fields_number(fields, answer, "expert_bytes_total"), text[3]));
	fprintf(out, "memory     slabs of up to %s, %s for all of them\n",
		format_bytes(fields_number(fields, answer, "slab_bytes_max"), text[0]),
		format_bytes(fields_number(fields, answer, "slab_bytes_total"), text[1]));
	fprintf(out, "can do     ");
	print_joined(out, fields_array(fields, answer, "capabilities"), ", ");
	fprintf(out, "\nstate      %s\n",
		strcmp(state, "any-token") == 0 ? "a conversation can be cut at any token"
		: strcmp(state, "points") == 0
			? "a conversation can be resumed at checkpoints only (CNRE_KV_CHECKPOINTS)"
			: "not known where a conversation can be cut");
}

static const char *block_of(uint64_t extent, char text[FORMAT_BYTES])
{
	if (extent == 0)
		return "all";
	(void)snprintf(text, FORMAT_BYTES, "%" PRIu64, extent);
	return text;
}

static void print_part(FILE *out, struct fields *fields, const json_t *part)
{
	const char *role = fields_string(fields, part, "role");
	char rows[FORMAT_BYTES], columns[FORMAT_BYTES], blocks[2 * FORMAT_BYTES + 4] = "-", bytes[FORMAT_BYTES];

	if (strstr(role, "-scale") != NULL)
		(void)snprintf(blocks, sizeof blocks, "%s x %s",
			       block_of(fields_number(fields, part, "block_rows"), rows),
			       block_of(fields_number(fields, part, "block_columns"), columns));
	fprintf(out, "  %-11s %-8s %7" PRIu64 " %8" PRIu64 "  %-10s %14s\n", role, fields_string(fields, part, "dtype"),
		fields_number(fields, part, "rows"), fields_number(fields, part, "columns"), blocks,
		format_count(fields_number(fields, part, "bytes"), bytes));
}

static void print_reads(FILE *out, struct fields *fields, const json_t *format)
{
	uint64_t shards = fields_number(fields, format, "in_several_shards"),
		 gaps = fields_number(fields, format, "with_gaps");
	char text[FORMAT_BYTES];
	const json_t *reads;
	size_t i;

	fprintf(out, "  reads       ");
	json_array_foreach (fields_array(fields, format, "reads"), i, reads)
		fprintf(out, "%s%" PRIu64 " for %s experts", i == 0 ? "" : ", ", fields_number(fields, reads, "reads"),
			format_count(fields_number(fields, reads, "objects"), text));
	if (shards > 0)
		fprintf(out, "; parts of %s lie in several shards", format_count(shards, text));
	if (gaps > 0)
		fprintf(out, "; between parts of %s lie other tensors", format_count(gaps, text));
	fputc('\n', out);
}

static void print_moves(FILE *out, struct fields *fields, const json_t *format)
{
	uint64_t parts = fields_number(fields, format, "moved_parts_max");
	char text[FORMAT_BYTES];

	fprintf(out, "  places      multiples of %" PRIu64 " in the files; ",
		fields_number(fields, format, "file_alignment"));
	if (parts == 0)
		fprintf(out, "parts stay where they are read, at multiples of 64\n");
	else
		fprintf(out, "up to %" PRIu64 " parts (%s) are moved after the read, to multiples of 64\n", parts,
			format_bytes(fields_number(fields, format, "moved_bytes_max"), text));
}

/* What the family's engine takes as one block, and cannot where a part was moved or lies elsewhere. */
static void print_units(FILE *out, struct fields *fields, const json_t *format)
{
	uint64_t objects = fields_number(fields, format, "objects"), contiguous;
	const json_t *unit;
	char text[FORMAT_BYTES];
	size_t i;

	json_array_foreach (fields_array(fields, format, "wanted_contiguous"), i, unit) {
		contiguous = fields_number(fields, unit, "contiguous");
		fprintf(out, "  engine      takes ");
		print_joined(out, fields_array(fields, unit, "parts"), ", ");
		if (contiguous == objects)
			fprintf(out, " as one block: they are\n");
		else
			fprintf(out,
				" as one block: they are in %s of its experts; else it needs a pointer to each, or a copy\n",
				format_count(contiguous, text));
	}
}

static void print_format(FILE *out, struct fields *fields, const json_t *format)
{
	char objects[FORMAT_BYTES], bytes[FORMAT_BYTES], slab[FORMAT_BYTES];
	const json_t *part;
	size_t i;

	fprintf(out, "\nformat %s: %s experts of %s bytes, slabs of up to %s\n",
		fields_string(fields, format, "format"),
		format_count(fields_number(fields, format, "objects"), objects),
		format_count(fields_number(fields, format, "expert_bytes"), bytes),
		format_bytes(fields_number(fields, format, "slab_bytes"), slab));
	fprintf(out, "  %-11s %-8s %7s %8s  %-10s %14s\n", "PART", "DTYPE", "ROWS", "COLUMNS", "A SCALE FOR", "BYTES");
	json_array_foreach (fields_array(fields, format, "parts"), i, part)
		print_part(out, fields, part);
	print_reads(out, fields, format);
	print_moves(out, fields, format);
	print_units(out, fields, format);
}

static int is_after(const json_t *layer)
{
	return strncmp(json_string_value(json_object_get(layer, "name")), "mtp", 3) == 0;
}

static int is_alike(const json_t *a, const json_t *b)
{
	static const char *const keys[] = {"experts", "top_k", "expert_bytes_min", "expert_bytes_max", "formats"};

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
			return 0;
	return is_after(a) == is_after(b);
}

static void print_layer_range(FILE *out, struct fields *fields, const json_t *first, const json_t *last)
{
	uint64_t experts = fields_number(fields, first, "experts");
	char name[80], least[FORMAT_BYTES], most[FORMAT_BYTES];

	if (first == last)
		(void)snprintf(name, sizeof name, "%s", fields_string(fields, first, "name"));
	else
		(void)snprintf(name, sizeof name, "%.30s to %.30s", fields_string(fields, first, "name"),
			       fields_string(fields, last, "name"));
	if (experts == 0) {
		fprintf(out, "  %-16s %8s\n", name, "dense");
		return;
	}
	fprintf(out, "  %-16s %8" PRIu64 " %6" PRIu64 " %14s %14s  ", name, experts,
		fields_number(fields, first, "top_k"),
		format_count(fields_number(fields, first, "expert_bytes_min"), least),
		format_count(fields_number(fields, first, "expert_bytes_max"), most));
	print_joined(out, fields_array(fields, first, "formats"), ", ");
	fputc('\n', out);
}

static void print_layers(FILE *out, struct fields *fields, const json_t *layers)
{
	const json_t *first, *last;
	size_t at, next;

	fprintf(out, "\n  %-16s %8s %6s %14s %14s  %s\n", "LAYER", "EXPERTS", "TOP-K", "BYTES, LEAST", "MOST",
		"FORMATS");
	for (at = 0; at < json_array_size(layers); at = next) {
		first = last = json_array_get(layers, at);
		for (next = at + 1; next < json_array_size(layers) && is_alike(first, json_array_get(layers, next));
		     next++)
			last = json_array_get(layers, next);
		print_layer_range(out, fields, first, last);
	}
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *format, *note = json_object_get(answer, "engine_note");
	size_t i;

	print_head(out, fields, answer);
	if (note != NULL)
		fprintf(out, "engine     %s\n", json_string_value(note));
	json_array_foreach (fields_array(fields, answer, "formats"), i, format)
		print_format(out, fields, format);
	print_layers(out, fields, fields_array(fields, answer, "by_layer"));
}

const struct verb verb_inspect = {
	.name = "inspect",
	.arguments = "DIR [--family FILE] [--dir DIR ...]",
	.summary = "what is understood of a checkpoint, and how its experts are read; needs no manager",
	.request = request,
	.takes_option = inspect_words_take_option,
	.is_local = is_local,
	.answer_here = answer_here,
	.print = print,
};
