/* SPDX-License-Identifier: Apache-2.0 */
/* Resolving settings from their sources; see settings.h. The table is settings_table.h. */
#include "manager/settings.h"

#include "base/check.h"
#include "base/log.h"
#include "base/message.h"
#include "base/size.h"
#include "manager/colibri_env.h"
#include "shm/kv.h"
#include "shm/layout.h"
#include "shm/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { SIZE, SIZE_OR_AUTO, DURATION, COUNT, OCTAL, CHOICE, FLAG, TEXT, NODE, LIST };

struct setting {
	const char *name;
	enum kind kind;
	size_t offset;
	const char *environment, *default_text;
	uint32_t low, high;
	const char *choices, *sentence;
};

static const struct setting table[] = {
#define SETTING(name, kind, field, environment, default_text, low, high, choices, sentence) \
	{name, kind, offsetof(struct settings, field), environment, default_text, low, high, choices, sentence},
#include "manager/settings_table.h"
#undef SETTING
};
_Static_assert(CNRE_LOG_DEBUG - CNRE_LOG_ERROR == 4, "the choices of log-level are its levels in order");
_Static_assert(CNRE_COUNT_OF(table) <= SETTINGS_COUNT_MAX, "settings.origin has room for the table");

#define NAME_MAX_BYTES 32u /* longest name in the table, and more: for the distance between names */
#define SUGGESTION_DISTANCE_MAX 3u
#define VALUE_BYTES_MAX 4096u

/* Where a value comes from, for messages and status. */
struct place {
	enum settings_source source;
	const char *label; /* "--ram", "CNRE_RAM", or the config file */
	uint32_t line;     /* config file only */
};

static int refuse(char *message, size_t message_bytes, const struct place *place, const char *name, const char *why)
{
	if (place->source == SETTINGS_FILE)
		return cnre_message(message, message_bytes, -EINVAL, "%s:%u: %s: %s", place->label, place->line, name,
				    why);
	return cnre_message(message, message_bytes, -EINVAL, "%s: %s", place->label, why);
}

/* ---- names ---- */

static const struct setting *find_setting(const char *name, size_t length)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++)
		if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0)
			return &table[i];
	return NULL;
}

/* Levenshtein distance; beyond NAME_MAX_BYTES everything is far. */
static unsigned distance(const char *a, size_t a_length, const char *b)
{
	unsigned row[NAME_MAX_BYTES + 1];
	size_t b_length = strlen(b);

	if (a_length > NAME_MAX_BYTES || b_length > NAME_MAX_BYTES)
		return NAME_MAX_BYTES;
	for (unsigned j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_length; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[b_length];
}

static const char *suggest(const char *name, size_t length)
{
	unsigned least = SUGGESTION_DISTANCE_MAX + 1;
	const char *best = NULL;

	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++) {
		unsigned d = distance(name, length, table[i].name);

		if (d < least && d < length) {
			least = d;
			best = table[i].name;
		}
	}
	return best;
}

static int refuse_unknown(char *message, size_t message_bytes, const char *where, const char *name, size_t length,
			  const char *dashes)
{
	const char *nearest = suggest(name, length);
	int shown = length > 64 ? 64 : (int)length;

	if (nearest == NULL)
		return cnre_message(message, message_bytes, -EINVAL, "%s%s%.*s: no such setting; see --help", where,
				    dashes, shown, name);
	return cnre_message(message, message_bytes, -EINVAL, "%s%s%.*s: no such setting; did you mean %s%s? See --help",
			    where, dashes, shown, name, dashes, nearest);
}

/* ---- values ---- */

int settings_parse_duration(const char *text, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"", 1000000000ull},   {"s", 1000000000ull},    {"ms", 1000000ull},
		     {"m", 60000000000ull}, {"h", 3600000000000ull}, {"d", 86400000000000ull}};
	uint64_t value = 0;
	const char *at = text;

	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return -EINVAL;
	if (at == text)
		return -EINVAL;
	for (size_t i = 0; i < CNRE_COUNT_OF(units); i++) {
		if (strcmp(at, units[i].unit) != 0)
			continue;
		if (__builtin_mul_overflow(value, units[i].ns, &value) || value > SETTINGS_DURATION_MAX_NS)
			return -EINVAL;
		*ret_ns = value;
		return 0;
	}
	return -EINVAL;
}

static int parse_number(const char *text, int base, uint32_t low, uint32_t high, uint32_t *ret_value)
{
	unsigned long value;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoul(text, &end, base);
	if (errno != 0 || *end != '\0' || value < low || value > high)
		return -EINVAL;
	*ret_value = (uint32_t)value;
	return 0;
}

/* Choices count from `first`: the values of an enum. */
static int parse_choice(const char *choices, uint32_t first, const char *text, uint32_t *ret_index)
{
	size_t length = strlen(text);
	uint32_t index = 0;

	for (const char *at = choices; at != NULL; at = strchr(at, '|'), index++) {
		at += *at == '|';
		if (strcspn(at, "|") == length && strncmp(at, text, length) == 0) {
			*ret_index = first + index;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_node(const char *text, int32_t *ret_node)
{
	uint32_t node;

	if (strcmp(text, "interleave") == 0)
		*ret_node = CNRE_NUMA_INTERLEAVE;
	else if (strcmp(text, "local") == 0)
		*ret_node = CNRE_NUMA_DEFAULT;
	else if (parse_number(text, 10, 0, CNRE_NUMA_NODES_MAX - 1, &node) == 0)
		*ret_node = (int32_t)node;
	else
		return -EINVAL;
	return 0;
}

static int store_size(const struct setting *setting, const char *text, uint64_t *field, char *why, size_t why_bytes)
{
	uint64_t bytes;

	if (cnre_size_parse(text, &bytes) < 0)
		return cnre_message(why, why_bytes, -EINVAL, "\"%.64s\" is not a size such as 120G, 512M or 4096",
				    text);
	if (bytes < setting->low)
		return cnre_message(why, why_bytes, -EINVAL, "must be more than 0; leave it out for the default");
	*field = bytes;
	return 0;
}

/* Reads a scalar into its field. 0, or -EINVAL and what would have been right in `why`. */
static int store(struct settings *settings, const struct setting *setting, char *text, char *why, size_t why_bytes)
{
	void *field = (char *)settings + setting->offset;
	uint64_t bytes;

	switch (setting->kind) {
	case SIZE:
		return store_size(setting, text, field, why, why_bytes);
	case SIZE_OR_AUTO:
		if (strcmp(text, "auto") != 0 && cnre_size_parse(text, &bytes) < 0)
			return cnre_message(why, why_bytes, -EINVAL, "\"%.64s\" is not a size such as 40G, nor auto", text);
		*(const char **)field = text;
		return 0;
	case DURATION:
		return settings_parse_duration(text, field) == 0
			       ? 0
			       : cnre_message(why, why_bytes, -EINVAL,
					      "\"%.64s\" is not a duration such as 30s, 5m or 0", text);
	case COUNT:
		return parse_number(text, 10, setting->low, setting->high, field) == 0
			       ? 0
			       : cnre_message(why, why_bytes, -EINVAL, "\"%.64s\" is not a number from %u to %u", text,
					      setting->low, setting->high);
	case OCTAL:
		return parse_number(text, 8, setting->low, setting->high, field) == 0
			       ? 0
			       : cnre_message(why, why_bytes, -EINVAL, "\"%.64s\" is not an octal mode up to %04o",
					      text, setting->high);
	case CHOICE:
		return parse_choice(setting->choices, setting->low, text, field) == 0
			       ? 0
			       : cnre_message(why, why_bytes, -EINVAL, "\"%.64s\" is not one of %s", text,
					      setting->choices);
	case FLAG:
		*(uint32_t *)field = 1;
		return 0;
	case TEXT:
		*(const char **)field = text;
		return 0;
	case NODE:
		return parse_node(text, field) == 0
			       ? 0
			       : cnre_message(why, why_bytes, -EINVAL,
					      "\"%.64s\" is not interleave, local or the number of a node", text);
	case LIST:
		break;
	}
	return -EINVAL;
}

static void clear_list(struct settings_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		free(list->item[i]);
	list->count = 0;
}

static int append(struct settings *settings, const struct setting *setting, const struct place *place,
		  const char *value, char *message, size_t message_bytes)
{
	struct settings_list *list = (struct settings_list *)((char *)settings + setting->offset);
	struct settings_origin *origin = &settings->origin[setting - table];
	uint32_t most = setting->high > 0 ? setting->high : SETTINGS_LIST_MAX;
	char *copy, why[64];

	if (origin->source != place->source)
		clear_list(list);
	if (list->count == most) {
		(void)snprintf(why, sizeof why, "given too often: at most %u", most);
		return refuse(message, message_bytes, place, setting->name, why);
	}
	copy = strdup(value);
	if (copy == NULL)
		return cnre_message(message, message_bytes, -ENOMEM, "out of memory");
	list->item[list->count++] = copy;
	origin->source = place->source;
	origin->line = place->line;
	origin->variable = place->source == SETTINGS_COLIBRI ? place->label : NULL;
	return 0;
}

static int replace(struct settings *settings, const struct setting *setting, const struct place *place,
		   const char *value, char *message, size_t message_bytes)
{
	struct settings_origin *origin = &settings->origin[setting - table];
	char why[192], *copy;

	if (origin->source == place->source)
		return refuse(message, message_bytes, place, setting->name, "given twice");
	copy = strdup(value);
	if (copy == NULL)
		return cnre_message(message, message_bytes, -ENOMEM, "out of memory");
	if (store(settings, setting, copy, why, sizeof why) < 0) {
		free(copy);
		return refuse(message, message_bytes, place, setting->name, why);
	}
	free(origin->text);
	*origin = (struct settings_origin){.source = place->source, .line = place->line, .text = copy};
	origin->variable = place->source == SETTINGS_COLIBRI ? place->label : NULL;
	return 0;
}

/* One value from one place; sources come in rising order of precedence. */
static int set(struct settings *settings, const struct setting *setting, const struct place *place, const char *value,
	       char *message, size_t message_bytes)
{
	if (value[0] == '\0')
		return refuse(message, message_bytes, place, setting->name, "needs a value");
	if (strlen(value) >= VALUE_BYTES_MAX)
		return refuse(message, message_bytes, place, setting->name, "the value is too long");
	if (setting->kind == LIST)
		return append(settings, setting, place, value, message, message_bytes);
	return replace(settings, setting, place, value, message, message_bytes);
}

/* ---- sources ---- */

int settings_open_defaults(struct settings **ret_settings)
{
	struct settings *settings = calloc(1, sizeof *settings);
	char why[192];

	if (settings == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++)
		if (table[i].default_text[0] != '(') /* the cast: a default is never written to or freed */
			CNRE_CHECK(store(settings, &table[i], (char *)table[i].default_text, why, sizeof why) == 0);
	*ret_settings = settings;
	return 0;
}

int settings_take_variable(struct settings *settings, const char *name, const char *variable, const char *value,
			   char *message, size_t message_bytes)
{
	const struct setting *setting = find_setting(name, strlen(name));
	struct place place = {SETTINGS_COLIBRI, variable, 0};

	return setting == NULL ? -ENOENT : set(settings, setting, &place, value, message, message_bytes);
}

int settings_is_list(const char *name)
{
	const struct setting *setting = find_setting(name, strlen(name));

	return setting != NULL && setting->kind == LIST;
}

const struct settings_origin *settings_origin_of(const struct settings *settings, const char *name)
{
	const struct setting *setting = find_setting(name, strlen(name));

	return setting == NULL ? NULL : &settings->origin[setting - table];
}

/* A flag is a word on the command line; a variable must say which it means. */
static int read_flag(struct settings *settings, const struct setting *setting, const struct place *place,
		     const char *value, char *message, size_t message_bytes)
{
	if (strcmp(value, "0") == 0)
		return 0;
	if (strcmp(value, "1") == 0)
		return set(settings, setting, place, value, message, message_bytes);
	return refuse(message, message_bytes, place, setting->name, "write 1, or 0");
}

/* CNRE_DIRS, CNRE_MIRRORS and CNRE_VIEW hold lists, separated by colons as in PATH. */
static int read_variable(struct settings *settings, const struct setting *setting, const char *value, char *message,
			 size_t message_bytes)
{
	struct place place = {SETTINGS_ENVIRONMENT, setting->environment, 0};
	char item[VALUE_BYTES_MAX];

	if (setting->kind == FLAG)
		return read_flag(settings, setting, &place, value, message, message_bytes);
	if (setting->kind != LIST)
		return set(settings, setting, &place, value, message, message_bytes);
	while (*value != '\0') {
		size_t length = strcspn(value, ":");
		int r;

		if (length >= sizeof item)
			return refuse(message, message_bytes, &place, setting->name, "the value is too long");
		memcpy(item, value, length);
		item[length] = '\0';
		r = set(settings, setting, &place, item, message, message_bytes);
		if (r < 0)
			return r;
		value += length + (value[length] == ':');
	}
	return 0;
}

static int read_environment(struct settings *settings, char *message, size_t message_bytes)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++) {
		const char *value = table[i].environment == NULL ? NULL : getenv(table[i].environment);
		int r;

		if (value == NULL || value[0] == '\0') /* an empty variable is an unset one */
			continue;
		r = read_variable(settings, &table[i], value, message, message_bytes);
		if (r < 0)
			return r;
	}
	return 0;
}

/* What the INI parser's callbacks share. inih tells no line numbers, but it asks for one line at a time. */
struct ini_run {
	struct settings *settings;
	const char *file, *at, *end;
	uint32_t line;
	int status; /* first error */
	char *message;
	size_t message_bytes;
};

static void fail_line(struct ini_run *run, const char *why)
{
	if (run->status == 0)
		run->status =
			cnre_message(run->message, run->message_bytes, -EINVAL, "%s:%u: %s", run->file, run->line, why);
}

/* As fgets: a line with its newline, at most size - 1 bytes. A longer one would be cut in two and is refused. */
static char *give_line(char *buffer, int size, void *context)
{
	struct ini_run *run = context;
	const char *newline;
	size_t length;

	if (run->at == run->end || run->status != 0)
		return NULL;
	run->line++;
	newline = memchr(run->at, '\n', (size_t)(run->end - run->at));
	length = (size_t)((newline == NULL ? run->end : newline + 1) - run->at);
	if (length >= (size_t)size) {
		fail_line(run, "the line is too long; give this value on the command line");
		return NULL;
	}
	if (memchr(run->at, '\0', length) != NULL) {
		fail_line(run, "not a text file");
		return NULL;
	}
	memcpy(buffer, run->at, length);
	buffer[length] = '\0';
	run->at += length;
	return buffer;
}

static int take_pair(void *context, const char *section, const char *name, const char *value)
{
	struct ini_run *run = context;
	struct place place = {SETTINGS_FILE, run->file, run->line};
	const struct setting *setting = find_setting(name, strlen(name));
	char where[SETTINGS_LINE_BYTES];

	if (run->status != 0)
		return 0;
	(void)snprintf(where, sizeof where, "%s:%u: ", run->file, run->line);
	if (section[0] != '\0' && strcmp(section, "manager") != 0)
		fail_line(run, "unknown section; use [manager] or none");
	else if (setting == NULL)
		run->status = refuse_unknown(run->message, run->message_bytes, where, name, strlen(name), "");
	else if (setting->kind == FLAG || strcmp(name, "config") == 0)
		run->status = refuse(run->message, run->message_bytes, &place, name, "only on the command line");
	else
		run->status = set(run->settings, setting, &place, value == NULL ? "" : value, run->message,
				  run->message_bytes);
	return run->status == 0;
}

int settings_read_text(struct settings *settings, const char *file, const char *text, size_t bytes, char *message,
		       size_t message_bytes)
{
	struct ini_run run = {.settings = settings,
			      .file = file,
			      .at = text,
			      .end = text + bytes,
			      .message = message,
			      .message_bytes = message_bytes};
	int r = ini_parse_stream(give_line, &run, take_pair, &run);

	if (run.status == 0 && r < 0)
		return cnre_message(message, message_bytes, -ENOMEM, "%s: out of memory", file);
	if (run.status == 0 && r > 0) {
		run.line = (uint32_t)r;
		fail_line(&run, "neither `name = value` nor [section]");
	}
	return run.status;
}

/* Reads the whole file into memory that the caller frees. Bytes or -errno. */
static long read_file(const char *path, char **ret_text)
{
	char *text = malloc(SETTINGS_FILE_BYTES_MAX + 1);
	int fd, error = 0;
	size_t length = 0;
	struct stat status;

	if (text == NULL)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block the start */
	if (fd < 0 || fstat(fd, &status) < 0)
		error = errno;
	else if (!S_ISREG(status.st_mode))
		error = S_ISDIR(status.st_mode) ? EISDIR : ENODEV;
	while (error == 0 && length <= SETTINGS_FILE_BYTES_MAX) {
		ssize_t got = read(fd, text + length, SETTINGS_FILE_BYTES_MAX + 1 - length);

		if (got == 0)
			break;
		if (got > 0)
			length += (size_t)got;
		else if (errno != EINTR)
			error = errno;
	}
	if (fd >= 0)
		(void)close(fd);
	if (error == 0 && length > SETTINGS_FILE_BYTES_MAX)
		error = EFBIG;
	if (error != 0) {
		free(text);
		return -error;
	}
	*ret_text = text;
	return (long)length;
}

static int read_config(struct settings *settings, const char *path, char *message, size_t message_bytes)
{
	char *text = NULL;
	long length = read_file(path, &text);
	int r;

	if (length < 0)
		return cnre_message(message, message_bytes, (int)length,
				    "--config %.256s: %s; name a file of `name = value` lines, or leave --config out",
				    path, length == -ENODEV ? "Not a regular file" : strerror((int)-length));
	r = settings_read_text(settings, path, text, (size_t)length, message, message_bytes);
	free(text);
	return r;
}

/* The next option of the command line: its setting and its value. 1, 0 at the end, or -EINVAL. */
static int next_option(int argc, char *const argv[], int *index, const struct setting **ret_setting,
		       const char **ret_value, char *message, size_t message_bytes)
{
	const char *word, *equals;
	size_t length;

	if (*index >= argc)
		return 0;
	word = argv[(*index)++];
	if (strcmp(word, "-h") == 0)
		word = "--help";
	if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
		return cnre_message(message, message_bytes, -EINVAL,
				    "%.64s: not an option; every setting is --name VALUE, see --help", word);
	equals = strchr(word, '=');
	length = equals == NULL ? strlen(word + 2) : (size_t)(equals - word - 2);
	*ret_setting = find_setting(word + 2, length);
	if (*ret_setting == NULL)
		return refuse_unknown(message, message_bytes, "", word + 2, length, "--");
	if ((*ret_setting)->kind == FLAG) {
		*ret_value = "yes";
		return equals == NULL ? 1
				      : cnre_message(message, message_bytes, -EINVAL, "--%s: takes no value",
						     (*ret_setting)->name);
	}
	if (equals != NULL)
		*ret_value = equals + 1;
	else if (*index < argc)
		*ret_value = argv[(*index)++];
	else
		return cnre_message(message, message_bytes, -EINVAL, "--%s: needs a value", (*ret_setting)->name);
	return 1;
}

/* Known before anything is read: whether the variables with the lowest precedence count. What is wrong is said later. */
static int asks_for_colibri(int argc, char *const argv[])
{
	const char *variable = getenv("CNRE_COLIBRI_ENV"), *value;
	const struct setting *setting;
	int index = 1;

	while (next_option(argc, argv, &index, &setting, &value, NULL, 0) > 0)
		if (strcmp(setting->name, "colibri-env") == 0)
			return 1;
	return variable != NULL && strcmp(variable, "1") == 0;
}

/* The file that --config names is read before the rest of the command line, which it yields to. */
static int read_named_config(struct settings *settings, int argc, char *const argv[], char *message,
			     size_t message_bytes)
{
	const struct setting *setting;
	const char *value, *path = NULL;
	int index = 1, r;

	while ((r = next_option(argc, argv, &index, &setting, &value, message, message_bytes)) > 0)
		if (strcmp(setting->name, "config") == 0)
			path = value;
	if (r < 0 || path == NULL)
		return r;
	return read_config(settings, path, message, message_bytes);
}

static int read_command_line(struct settings *settings, int argc, char *const argv[], char *message,
			     size_t message_bytes)
{
	const struct setting *setting;
	const char *value;
	int index = 1, r;

	while ((r = next_option(argc, argv, &index, &setting, &value, message, message_bytes)) > 0) {
		char label[NAME_MAX_BYTES + 4];
		struct place place = {SETTINGS_COMMAND_LINE, label, 0};

		(void)snprintf(label, sizeof label, "--%s", setting->name);
		r = set(settings, setting, &place, value, message, message_bytes);
		if (r < 0)
			return r;
	}
	return r;
}

int settings_open(struct settings **ret_settings, int argc, char *const argv[], char *message, size_t message_bytes)
{
	struct settings *settings;
	int r = settings_open_defaults(&settings);

	if (r < 0)
		return cnre_message(message, message_bytes, r, "out of memory");
	r = asks_for_colibri(argc, argv) ? colibri_env_read(settings, message, message_bytes) : 0;
	if (r == 0)
		r = read_environment(settings, message, message_bytes);
	if (r == 0)
		r = read_named_config(settings, argc, argv, message, message_bytes);
	if (r == 0)
		r = read_command_line(settings, argc, argv, message, message_bytes);
	if (r == 0 && settings->model.count == 0 && !settings->help && !settings->version)
		r = cnre_message(message, message_bytes, -EINVAL,
				 "--model: at least one checkpoint directory is needed");
	if (r < 0) {
		(void)settings_close(settings);
		return r;
	}
	*ret_settings = settings;
	return 0;
}

struct settings *settings_close(struct settings *settings)
{
	if (settings == NULL)
		return NULL;
	clear_list(&settings->model);
	clear_list(&settings->mirror);
	clear_list(&settings->dir);
	clear_list(&settings->kv_allow);
	clear_list(&settings->view);
	clear_list(&settings->try_view);
	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++)
		free(settings->origin[i].text);
	free(settings);
	return NULL;
}

/* ---- describing ---- */

static void describe_value(const struct settings *settings, const struct setting *setting, char *text,
			   size_t text_bytes)
{
	const struct settings_list *list = (const struct settings_list *)((const char *)settings + setting->offset);
	const struct settings_origin *origin = &settings->origin[setting - table];
	size_t length = strlen(setting->default_text);
	size_t at = 0;

	if (origin->source == SETTINGS_DEFAULT) { /* "(words)" without the brackets */
		int in_brackets = setting->default_text[0] == '(';

		(void)snprintf(text, text_bytes, "%.*s", (int)(length - 2u * (unsigned)in_brackets),
			       setting->default_text + in_brackets);
		return;
	}
	if (setting->kind != LIST) {
		(void)snprintf(text, text_bytes, "%s", origin->text);
		return;
	}
	text[0] = '\0';
	for (uint32_t i = 0; i < list->count && at < text_bytes; i++)
		at += (size_t)snprintf(text + at, text_bytes - at, "%s%s", i == 0 ? "" : ", ", list->item[i]);
}

const char *settings_source_name(const struct settings *settings, const char *name)
{
	static const char *const names[] = {"default", "environment", "environment", "config file", "command line"};
	const struct setting *setting = find_setting(name, strlen(name));

	return setting == NULL ? names[0] : names[settings->origin[setting - table].source];
}

/* What the manager is asked for, and then does not serve. */
static int asks_only(const struct setting *setting)
{
	return setting->kind == FLAG && setting->offset != offsetof(struct settings, colibri_env);
}

int settings_describe(const struct settings *settings, uint32_t index, struct settings_line *ret_line)
{
	const struct setting *setting;
	const struct settings_origin *origin;

	while (index < CNRE_COUNT_OF(table) && asks_only(&table[index]))
		index++; /* they stand last, so no index shows a setting twice */
	if (index >= CNRE_COUNT_OF(table))
		return 0;
	setting = &table[index];
	origin = &settings->origin[index];
	ret_line->name = setting->name;
	describe_value(settings, setting, ret_line->value, sizeof ret_line->value);
	if (origin->source == SETTINGS_FILE)
		(void)snprintf(ret_line->source, sizeof ret_line->source, "config file, line %u", origin->line);
	else if (origin->source == SETTINGS_ENVIRONMENT || origin->source == SETTINGS_COLIBRI)
		(void)snprintf(ret_line->source, sizeof ret_line->source, "environment %s",
			       origin->source == SETTINGS_COLIBRI ? origin->variable : setting->environment);
	else
		(void)snprintf(ret_line->source, sizeof ret_line->source, "%s",
			       settings_source_name(settings, setting->name));
	return 1;
}

static const char *argument_of(const struct setting *setting)
{
	switch (setting->kind) {
	case SIZE:
		return "SIZE";
	case SIZE_OR_AUTO:
		return "SIZE|auto";
	case DURATION:
		return "DURATION";
	case COUNT:
		return "N";
	case OCTAL:
		return "MODE";
	case CHOICE:
		return setting->choices;
	case TEXT:
		return setting->choices != NULL ? setting->choices : "NAME";
	case NODE:
		return "interleave|local|NODE";
	case LIST:
		return setting->choices != NULL ? setting->choices : "DIR";
	case FLAG:
		break;
	}
	return NULL;
}

int settings_help_at(uint32_t index, struct settings_help *ret_help)
{
	if (index >= CNRE_COUNT_OF(table))
		return 0;
	*ret_help = (struct settings_help){
		.name = table[index].name,
		.argument = argument_of(&table[index]),
		.environment = table[index].environment,
		.default_text = table[index].default_text,
		.sentence = table[index].sentence,
	};
	return 1;
}
