/* SPDX-License-Identifier: Apache-2.0 */
/* A described family through inih, which stays in this file; see family_file.h. */
#include "model/family_file.h"

#include "base/check.h"
#include "base/file.h"
#include "base/message.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 128u        /* all lists have fewer */
#define FAMILY_NAME_BYTES 32u /* of struct model_catalog */

struct family_file {
	struct family family;
	struct family_layout layout;
	const char *types[FAMILY_FILE_TYPES_MAX + 1], *stems[FAMILY_STEMS_MAX + 1], *routers[FAMILY_STEMS_MAX + 1];
	const char *names[FAMILY_NAMES_MAX];
	const struct encoding *encodings[ENCODING_LIST_MAX + 1];
	uint32_t word_count;
	char *word[WORDS_MAX]; /* owned */
};

/* What inih's callbacks share. It tells no line numbers, but asks for one line at a time. */
struct run {
	struct family_file *file;
	const char *path, *at, *end;
	uint32_t line;
	int status; /* first error */
	char *message;
};

__attribute__((format(printf, 3, 4))) static int fail(struct run *run, int error, const char *format, ...)
{
	char what[FAMILY_FILE_MESSAGE_BYTES - FAMILY_FILE_WORD_BYTES];
	va_list arguments;

	if (run->status < 0)
		return run->status;
	va_start(arguments, format);
	(void)vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	if (run->line > 0)
		run->status = cnre_message(run->message, FAMILY_FILE_MESSAGE_BYTES, error, "%.*s:%u: %s",
					   (int)FAMILY_FILE_WORD_BYTES - 16, run->path, run->line, what);
	else
		run->status = cnre_message(run->message, FAMILY_FILE_MESSAGE_BYTES, error, "%.*s: %s",
					   (int)FAMILY_FILE_WORD_BYTES - 16, run->path, what);
	return run->status;
}

/* ---- words ---- */

static int is_word(const char *text)
{
	for (const char *at = text; *at != '\0'; at++)
		if (!isgraph((unsigned char)*at))
			return 0;
	return text[0] != '\0';
}

/* A copy that lives as long as the file; NULL after an error. */
static const char *keep(struct run *run, const char *text, size_t length)
{
	char *copy;

	if (length >= FAMILY_FILE_WORD_BYTES) {
		(void)fail(run, -E2BIG, "%.32s...: longer than %u bytes", text, FAMILY_FILE_WORD_BYTES - 1);
		return NULL;
	}
	if (run->file->word_count == WORDS_MAX) {
		(void)fail(run, -E2BIG, "more than %u words in one file", WORDS_MAX);
		return NULL;
	}
	copy = strndup(text, length);
	if (copy == NULL) {
		(void)fail(run, -ENOMEM, "out of memory");
		return NULL;
	}
	run->file->word[run->file->word_count++] = copy;
	if (!is_word(copy)) {
		(void)fail(run, -EINVAL, "\"%.32s\": expected one word without spaces", copy);
		return NULL;
	}
	return copy;
}

/* The next of a comma-separated list, kept; NULL at the end or after an error. */
static const char *next_word(struct run *run, const char **at)
{
	size_t length, kept;

	*at += strspn(*at, " \t,");
	if (**at == '\0')
		return NULL;
	length = kept = strcspn(*at, ",");
	while (kept > 0 && isspace((unsigned char)(*at)[kept - 1]))
		kept--;
	*at += length;
	return keep(run, *at - length, kept);
}

/* Appends the words of a value to a list that ends with NULL. */
static void take_words(struct run *run, const char **list, uint32_t max, const char *value)
{
	const char *word;
	uint32_t count = 0;

	while (list[count] != NULL)
		count++;
	while ((word = next_word(run, &value)) != NULL) {
		if (count == max) {
			(void)fail(run, -E2BIG, "more than %u of these", max);
			return;
		}
		list[count++] = word;
	}
}

/* ---- [family] ---- */

static void take_state(struct run *run, const char *value)
{
	if (strcmp(value, "any-token") == 0)
		run->file->family.state = FAMILY_STATE_ANY_TOKEN;
	else if (strcmp(value, "points") == 0)
		run->file->family.state = FAMILY_STATE_POINTS;
	else
		(void)fail(run, -EINVAL, "state: \"%.32s\" is neither any-token nor points", value);
}

static void take_rows(struct run *run, const char *value)
{
	if (value[0] < '0' || value[0] > '0' + (int)FAMILY_MTP_MAX || value[1] != '\0')
		(void)fail(run, -EINVAL, "rows-after: \"%.32s\" is not a number from 0 to %u", value, FAMILY_MTP_MAX);
	else
		run->file->family.mtp_rows = (uint8_t)(value[0] - '0');
}

static void take_family(struct run *run, const char *name, const char *value)
{
	struct family *family = &run->file->family;

	if (strcmp(name, "name") == 0 && (family->name != NULL || strlen(value) >= FAMILY_NAME_BYTES))
		(void)fail(run, -EINVAL, "name: given twice, or longer than %u bytes", FAMILY_NAME_BYTES - 1);
	else if (strcmp(name, "name") == 0)
		family->name = keep(run, value, strlen(value));
	else if (strcmp(name, "model-type") == 0)
		take_words(run, run->file->types, FAMILY_FILE_TYPES_MAX, value);
	else if (strcmp(name, "state") == 0)
		take_state(run, value);
	else if (strcmp(name, "rows-after") == 0)
		take_rows(run, value);
	else
		(void)fail(run, -EINVAL, "%.64s: not known in [family]: name, model-type, state, rows-after are", name);
}

/* ---- [config] ---- */

static void take_config(struct run *run, const char *name, const char *value)
{
	struct family *family = &run->file->family;
	const struct {
		const char *name;
		struct family_key *keys;
	} lists[] = {{"layers", family->layers},
		     {"experts", family->experts},
		     {"top-k", family->top_k},
		     {"hidden", family->hidden},
		     {"intermediate", family->intermediate},
		     {"experts-after", family->mtp_experts},
		     {"top-k-after", family->mtp_top_k}};
	const char *words[FAMILY_KEYS_MAX + 1] = {NULL};

	for (size_t i = 0; i < CNRE_COUNT_OF(lists); i++) {
		if (strcmp(lists[i].name, name) != 0)
			continue;
		if (lists[i].keys[0].name != NULL)
			(void)fail(run, -EINVAL, "%s: given twice: list alternatives with commas", name);
		take_words(run, words, FAMILY_KEYS_MAX, value);
		for (uint32_t k = 0; words[k] != NULL; k++)
			lists[i].keys[k].name = words[k];
		return;
	}
	if (strcmp(name, "dense-layers") == 0)
		family->dense_key = keep(run, value, strlen(value));
	else
		(void)fail(run, -EINVAL,
			   "%.64s: not known in [config]: layers, experts, top-k, hidden, intermediate, dense-layers, "
			   "experts-after, top-k-after are",
			   name);
}

/* ---- [experts] ---- */

/* Which patterns a tensor may be given under: what it holds, and so what its scales are called with -scale after it. */
static const struct {
	const char *name;
	uint8_t block_count;
	struct family_block block[FAMILY_BLOCKS_MAX];
} contents[] = {
	{"gate", 1, {FAMILY_GATE}},
	{"up", 1, {FAMILY_UP}},
	{"down", 1, {FAMILY_DOWN}},
	{"gate-up", 2, {FAMILY_GATE, FAMILY_UP}},
	{"up-gate", 2, {FAMILY_UP, FAMILY_GATE}},
	{"gate-up-down", 3, {FAMILY_GATE, FAMILY_UP, FAMILY_DOWN}},
	{"gate-down-up", 3, {FAMILY_GATE, FAMILY_DOWN, FAMILY_UP}},
};

/*
 * 1: of %L, %M and %E it has only those that `allowed` names, each at most once, and a number that stands for one ends where
 * it does: no other digits follow it.
 */
static int is_pattern(const char *text, const char *allowed)
{
	unsigned seen = 0;

	for (const char *at = strchr(text, '%'); at != NULL; at = strchr(at + 2, '%')) {
		const char *which = at[1] == '\0' ? NULL : strchr(allowed, at[1]);

		if (which == NULL || (seen & 1u << (which - allowed)) != 0 || at[2] == '%' ||
		    isdigit((unsigned char)at[2]))
			return 0;
		seen |= 1u << (which - allowed);
	}
	return 1;
}

static void take_stems(struct run *run, const char **list, const char *name, const char *value)
{
	uint32_t i = 0;

	take_words(run, list, FAMILY_STEMS_MAX, value);
	for (; list[i] != NULL; i++) {
		int has_layer = strstr(list[i], "%L") != NULL, has_row = strstr(list[i], "%M") != NULL;
		size_t length = strlen(list[i]);

		if (has_layer == has_row || !is_pattern(list[i], "LM") || list[i][length - 2] == '%')
			(void)fail(
				run, -EINVAL,
				"%s: %.64s: must have one %%L for the layer, or one %%M for a row after the last, no other "
				"%%, and behind it no digit but some text",
				name, list[i]);
	}
}

/* The layout's tensor with this content, made if it is not there yet. NULL: there are too many. */
static struct family_tensor *tensor_of(struct run *run, size_t content)
{
	struct family_layout *layout = &run->file->layout;
	struct family_tensor *tensor;

	for (uint32_t i = 0; i < layout->tensor_count; i++)
		if (layout->tensor[i].block_count == contents[content].block_count &&
		    memcmp(layout->tensor[i].block, contents[content].block, sizeof contents[content].block) == 0)
			return &layout->tensor[i];
	if (layout->tensor_count == FAMILY_BLOCKS_MAX) {
		(void)fail(run, -EINVAL, "%s: more tensors than gate, up and down can lie in", contents[content].name);
		return NULL;
	}
	tensor = &layout->tensor[layout->tensor_count++];
	*tensor = (struct family_tensor){
		.name = FAMILY_NO_NAME, .scale_name = FAMILY_NO_NAME, .block_count = contents[content].block_count};
	memcpy(tensor->block, contents[content].block, sizeof tensor->block);
	return tensor;
}

static void take_pattern(struct run *run, size_t content, int is_scale, const char *name, const char *value)
{
	struct family_tensor *tensor = tensor_of(run, content);
	uint8_t *index;

	if (tensor == NULL)
		return;
	index = is_scale ? &tensor->scale_name : &tensor->name;
	if (*index != FAMILY_NO_NAME) {
		(void)fail(run, -EINVAL, "%s: given twice", name);
		return;
	}
	if (!is_pattern(value, "E")) {
		(void)fail(run, -EINVAL,
			   "%s: %.64s: may have one %%E for the expert, no other %%, and no digit behind it", name,
			   value);
		return;
	}
	*index = (uint8_t)run->file->family.name_count; /* 2 * FAMILY_BLOCKS_MAX at most */
	run->file->names[run->file->family.name_count++] = keep(run, value, strlen(value));
}

static void take_formats(struct run *run, const char *value)
{
	const struct encoding *encoding;
	const char *word;
	char known[256];
	uint32_t count = 0;

	while (run->file->encodings[count] != NULL)
		count++;
	while ((word = next_word(run, &value)) != NULL) {
		encoding = encoding_find(word);
		if (encoding == NULL)
			(void)fail(run, -EINVAL, "formats: %.32s is not known; known are: %s", word,
				   encoding_list(known, sizeof known));
		else if (count == ENCODING_LIST_MAX)
			(void)fail(run, -E2BIG, "formats: more than %u", ENCODING_LIST_MAX);
		else
			run->file->encodings[count++] = encoding;
	}
}

static void take_experts(struct run *run, const char *name, const char *value)
{
	static const char scale[] = "-scale";
	size_t length = strlen(name), suffix = sizeof scale - 1;
	int is_scale = length > suffix && strcmp(name + length - suffix, scale) == 0;

	if (strcmp(name, "stem") == 0) {
		take_stems(run, run->file->stems, name, value);
		return;
	}
	if (strcmp(name, "router") == 0) {
		take_stems(run, run->file->routers, name, value);
		return;
	}
	if (strcmp(name, "formats") == 0) {
		take_formats(run, value);
		return;
	}
	if (is_scale)
		length -= suffix;
	for (size_t i = 0; i < CNRE_COUNT_OF(contents); i++)
		if (strlen(contents[i].name) == length && strncmp(contents[i].name, name, length) == 0) {
			take_pattern(run, i, is_scale, name, value);
			return;
		}
	(void)fail(
		run, -EINVAL,
		"%.64s: not known in [experts]: stem, router, formats, and gate, up, down, gate-up, up-gate, gate-up-down, "
		"gate-down-up, each with -scale too, are",
		name);
}

/* ---- the file ---- */

static int take_pair(void *context, const char *section, const char *name, const char *value)
{
	struct run *run = context;

	if (run->status < 0)
		return 0;
	if (value == NULL || value[0] == '\0')
		(void)fail(run, -EINVAL, "%.64s: needs a value", name);
	else if (strcmp(section, "family") == 0)
		take_family(run, name, value);
	else if (strcmp(section, "config") == 0)
		take_config(run, name, value);
	else if (strcmp(section, "experts") == 0)
		take_experts(run, name, value);
	else
		(void)fail(run, -EINVAL, "section [%.32s]: not known: [family], [config], [experts] are", section);
	return run->status == 0;
}

/* As fgets: a line with its newline, at most size - 1 bytes. A longer one would be cut in two and is refused. */
static char *give_line(char *buffer, int size, void *context)
{
	struct run *run = context;
	const char *newline;
	size_t length;

	if (run->at == run->end || run->status < 0)
		return NULL;
	run->line++;
	newline = memchr(run->at, '\n', (size_t)(run->end - run->at));
	length = (size_t)((newline == NULL ? run->end : newline + 1) - run->at);
	if (length >= (size_t)size) {
		(void)fail(run, -E2BIG, "the line is too long: split its list over several lines");
		return NULL;
	}
	if (memchr(run->at, '\0', length) != NULL) {
		(void)fail(run, -EINVAL, "not a text file");
		return NULL;
	}
	memcpy(buffer, run->at, length);
	buffer[length] = '\0';
	run->at += length;
	return buffer;
}

/* Which matrices the layout has, as bits of their roles; a matrix twice is refused. */
static int check_roles(struct run *run)
{
	const struct family_layout *layout = &run->file->layout;
	unsigned seen = 0;

	for (uint32_t i = 0; i < layout->tensor_count; i++) {
		const struct family_tensor *tensor = &layout->tensor[i];

		if (tensor->name == FAMILY_NO_NAME)
			return fail(run, -EINVAL,
				    "[experts]: scales are named without the weights that they belong to");
		for (uint32_t k = 0; k < tensor->block_count; k++) {
			if ((seen & 1u << tensor->block[k].role) != 0)
				return fail(run, -EINVAL, "[experts]: gate, up or down lies in two tensors");
			seen |= 1u << tensor->block[k].role;
		}
	}
	if (seen != (1u << MODEL_GATE | 1u << MODEL_UP | 1u << MODEL_DOWN))
		return fail(run, -EINVAL,
			    "[experts]: gate, up and down must each be named: alone, or as gate-up and the like");
	return 0;
}

static int check_required(struct run *run)
{
	const struct family_file *file = run->file;
	const struct {
		const void *given;
		const char *what;
	} required[] = {
		{file->family.name, "name in [family]"},
		{file->types[0], "model-type in [family]"},
		{file->family.layers[0].name, "layers in [config]"},
		{file->family.experts[0].name, "experts in [config]"},
		{file->family.top_k[0].name, "top-k in [config]"},
		{file->family.hidden[0].name, "hidden in [config]"},
		{file->family.intermediate[0].name, "intermediate in [config]"},
		{file->stems[0], "stem in [experts]"},
		{file->encodings[0], "formats in [experts]"},
	};

	for (size_t i = 0; i < CNRE_COUNT_OF(required); i++)
		if (required[i].given == NULL)
			return fail(run, -EINVAL, "%s is missing: add it", required[i].what);
	return 0;
}

/* An encoding with scales needs a name for them, and one without must not have one: else no expert could ever be it. */
static int check_scales(struct run *run)
{
	const struct family_file *file = run->file;

	for (uint32_t i = 0; i < file->layout.tensor_count; i++)
		for (uint32_t k = 0; file->encodings[k] != NULL; k++)
			if (file->encodings[k]->scales != ENCODING_NO_SCALES &&
			    file->layout.tensor[i].scale_name == FAMILY_NO_NAME)
				return fail(run, -EINVAL,
					    "[experts]: %s has scales, but a tensor has no -scale beside it",
					    file->encodings[k]->name);
	return 0;
}

static void connect(struct family_file *file)
{
	file->layout.encodings = file->encodings;
	file->family.model_types = file->types;
	file->family.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO;
	file->family.stems = file->stems;
	file->family.routers = file->routers;
	file->family.names = file->names;
	file->family.layouts = &file->layout;
	file->family.layout_count = 1;
}

static void parse(struct run *run)
{
	int r = ini_parse_stream(give_line, run, take_pair, run);

	if (run->status == 0 && r < 0)
		(void)fail(run, -ENOMEM, "out of memory");
	if (run->status == 0 && r > 0) {
		run->line = (uint32_t)r;
		(void)fail(run, -EINVAL, "neither `name = value` nor [section]");
	}
	run->line = 0; /* what follows is about the whole file */
	if (run->status == 0 && check_required(run) == 0 && check_roles(run) == 0)
		(void)check_scales(run);
}

int family_file_read(struct family_file **ret_file, const char *path, const char *text, size_t bytes,
		     char message[FAMILY_FILE_MESSAGE_BYTES])
{
	struct run run = {.path = path, .at = text, .end = text + bytes, .message = message};

	run.file = calloc(1, sizeof *run.file);
	if (run.file == NULL)
		return fail(&run, -ENOMEM, "out of memory");
	parse(&run);
	if (run.status < 0) {
		(void)family_file_close(run.file);
		return run.status;
	}
	connect(run.file);
	*ret_file = run.file;
	return 0;
}

int family_file_open(struct family_file **ret_file, const char *path, char message[FAMILY_FILE_MESSAGE_BYTES])
{
	uint64_t bytes = 0;
	int fd = cnre_file_open(AT_FDCWD, path, &bytes);
	char *text = NULL;
	int64_t got = fd;
	int result;

	if (fd >= 0 && bytes > FAMILY_FILE_BYTES_MAX)
		got = -EFBIG;
	else if (fd >= 0) {
		text = malloc(bytes + 1);
		got = text == NULL ? -ENOMEM : cnre_file_read(fd, text, bytes, 0);
	}
	if (fd >= 0)
		(void)close(fd);
	if (got < 0)
		result = cnre_message(message, FAMILY_FILE_MESSAGE_BYTES, (int)got,
				      "%.300s: %s: name a file that describes a family, as doc/family.ini does", path,
				      got == -EINVAL ? "not a regular file" : strerror((int)-got));
	else
		result = family_file_read(ret_file, path, text, (size_t)got, message);
	free(text);
	return result;
}

struct family_file *family_file_close(struct family_file *file)
{
	if (file == NULL)
		return NULL;
	for (uint32_t i = 0; i < file->word_count; i++)
		free(file->word[i]);
	free(file);
	return NULL;
}

const struct family *family_file_family(const struct family_file *file)
{
	return &file->family;
}
