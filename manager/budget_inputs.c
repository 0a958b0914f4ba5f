/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading memory, huge pages and control-group limits of a machine, cgroup v2, v1 and the two side by side. A file that
 * is absent is no limit; only /proc/meminfo must be there. Everything read is input: sizes of files, numbers and path
 * components are bounded and checked.
 */
#include "manager/budget.h"

#include "base/message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1u << 20) /* of one file of proc or sysfs; the longest is mountinfo */
#define ANCESTORS_MAX 64u
#define V1_UNLIMITED (1ull << 60) /* v1 says "none" by a number near 2^63 */

struct reader {
	const char *root;
	struct budget_inputs *inputs;
	char text[FILE_BYTES_MAX];
	int too_many;
};

/* Where a controller's groups lie: a hierarchy's mount point and our group below it. */
struct hierarchy {
	int version;                   /* 0: not found, 1, 2 */
	char top[BUDGET_PATH_BYTES];   /* "/sys/fs/cgroup/memory" */
	char group[BUDGET_PATH_BYTES]; /* "" or "/a/b" */
};

/* Reads a whole file below root into reader->text, terminated. Bytes or -errno. */
static int read_text(struct reader *reader, const char *path)
{
	char full[4096 + 2 * BUDGET_PATH_BYTES];
	size_t length = 0;
	int fd, cut = snprintf(full, sizeof full, "%s%s", strcmp(reader->root, "/") == 0 ? "" : reader->root, path);

	if (cut < 0 || (size_t)cut >= sizeof full)
		return -ENAMETOOLONG;
	fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	while (length < sizeof reader->text - 1) {
		ssize_t got = read(fd, reader->text + length, sizeof reader->text - 1 - length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	(void)close(fd);
	reader->text[length] = '\0';
	return (int)length;
}

/* A decimal number at the start of text; "max" and v1's huge numbers are BUDGET_NONE. 0 or -EBADMSG. */
static int parse_limit(const char *text, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (strncmp(text, "max", 3) == 0) {
		*ret_value = BUDGET_NONE;
		return 0;
	}
	if (*text < '0' || *text > '9')
		return -EBADMSG;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || (*end != '\0' && *end != '\n' && *end != ' '))
		return -EBADMSG;
	*ret_value = value >= V1_UNLIMITED ? BUDGET_NONE : value;
	return 0;
}

static int read_in(struct reader *reader, const char *directory, const char *name)
{
	char path[2 * BUDGET_PATH_BYTES];

	if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
		return -ENAMETOOLONG;
	return read_text(reader, path);
}

static int read_number(struct reader *reader, const char *directory, const char *name, uint64_t *ret_value)
{
	int r = read_in(reader, directory, name);

	return r < 0 ? r : parse_limit(reader->text, ret_value);
}

/* The number behind `key` at the start of a line ("MemTotal:   123 kB", "inactive_file 123"). 0 or -ENOENT. */
static int find_number(const char *text, const char *key, uint64_t *ret_value)
{
	size_t key_length = strlen(key);

	for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, key_length) != 0 || (line[key_length] != ' ' && line[key_length] != ':'))
			continue;
		line += key_length + 1;
		line += strspn(line, " \t");
		return parse_limit(line, ret_value) < 0 ? -ENOENT : 0;
	}
	return -ENOENT;
}

/* ---- machine ---- */

static int read_meminfo(struct reader *reader, char *message, size_t message_bytes)
{
	struct budget_inputs *in = reader->inputs;
	int r = read_text(reader, "/proc/meminfo");

	if (r < 0)
		return cnre_message(message, message_bytes, r, "%s/proc/meminfo: %s", reader->root, strerror(-r));
	/* Before Linux 3.14 there is no MemAvailable; MemFree is a safe, low answer. */
	if (find_number(reader->text, "MemTotal", &in->total_bytes) < 0 ||
	    (find_number(reader->text, "MemAvailable", &in->available_bytes) < 0 &&
	     find_number(reader->text, "MemFree", &in->available_bytes) < 0) ||
	    in->total_bytes > BUDGET_NONE / 1024 || in->available_bytes > in->total_bytes)
		return cnre_message(message, message_bytes, -EBADMSG,
				    "%s/proc/meminfo: no plausible MemTotal and MemAvailable", reader->root);
	in->total_bytes *= 1024;
	in->available_bytes *= 1024;
	return 0;
}

static void read_huge_pages(struct reader *reader)
{
	static const struct {
		const char *directory;
		uint64_t bytes;
	} sizes[BUDGET_HUGE_COUNT] = {
		[BUDGET_HUGE_2M] = {"/sys/kernel/mm/hugepages/hugepages-2048kB", 2ull << 20},
		[BUDGET_HUGE_1G] = {"/sys/kernel/mm/hugepages/hugepages-1048576kB", 1ull << 30},
	};

	for (int i = 0; i < BUDGET_HUGE_COUNT; i++) {
		uint64_t free_pages = 0, reserved_pages = 0;

		if (read_number(reader, sizes[i].directory, "free_hugepages", &free_pages) < 0)
			continue;
		(void)read_number(reader, sizes[i].directory, "resv_hugepages", &reserved_pages); /* absent: none */
		if (free_pages > reserved_pages && free_pages < (1ull << 40) / sizes[i].bytes * 1024)
			reader->inputs->huge_free_bytes[i] = (free_pages - reserved_pages) * sizes[i].bytes;
	}
}

/* ---- one NUMA node ---- */

/* "Node 1 MemFree:   123 kB", in bytes; 0 for what is not there. */
static uint64_t find_node_bytes(const struct reader *reader, int number, const char *what)
{
	char key[64];
	uint64_t kib = 0;

	(void)snprintf(key, sizeof key, "Node %d %s", number, what);
	return find_number(reader->text, key, &kib) < 0 || kib > BUDGET_NONE / 4096 ? 0 : kib * 1024;
}

static void read_node(struct reader *reader, int number)
{
	static const struct {
		const char *directory;
		uint64_t bytes;
	} sizes[BUDGET_HUGE_COUNT] = {
		[BUDGET_HUGE_2M] = {"hugepages-2048kB", 2ull << 20},
		[BUDGET_HUGE_1G] = {"hugepages-1048576kB", 1ull << 30},
	};
	struct budget_node node = {.number = number};
	char directory[128];

	(void)snprintf(directory, sizeof directory, "/sys/devices/system/node/node%d", number);
	if (read_in(reader, directory, "meminfo") < 0)
		return;
	node.total_bytes = find_node_bytes(reader, number, "MemTotal");
	node.available_bytes =
		find_node_bytes(reader, number, "MemFree") + find_node_bytes(reader, number, "Inactive(file)");
	for (int i = 0; i < BUDGET_HUGE_COUNT; i++) {
		uint64_t pages;

		(void)snprintf(directory, sizeof directory, "/sys/devices/system/node/node%d/hugepages/%s", number,
			       sizes[i].directory);
		if (read_number(reader, directory, "free_hugepages", &pages) == 0 &&
		    pages < (1ull << 50) / sizes[i].bytes)
			node.huge_free_bytes[i] = pages * sizes[i].bytes;
	}
	reader->inputs->node = node;
}

void budget_read_node(const char *root, int number, struct budget_inputs *inputs)
{
	struct reader *reader = calloc(1, sizeof *reader);

	if (reader == NULL || number < 0)
		goto out;
	reader->root = root;
	reader->inputs = inputs;
	read_node(reader, number);
out:
	free(reader);
}

/* ---- control groups: which directory ---- */

static int has_word(const char *list, size_t length, const char *word)
{
	size_t word_length = strlen(word);

	for (size_t i = 0; i + word_length <= length; i++)
		if (strncmp(list + i, word, word_length) == 0 && (i == 0 || list[i - 1] == ',') &&
		    (i + word_length == length || list[i + word_length] == ','))
			return 1;
	return 0;
}

/* A line of proc/self/cgroup, "4:memory:/a/b" or "0::/a/b", for this controller: its v1 line wins over v2's. */
static void find_group(struct reader *reader, const char *controller, struct hierarchy *hierarchy)
{
	for (const char *line = reader->text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		const char *list, *path;
		size_t length;
		int version;

		line += *line == '\n';
		list = strchr(line, ':');
		path = list == NULL ? NULL : strchr(list + 1, ':');
		if (path == NULL)
			return;
		version = path == list + 1 ? 2 : has_word(list + 1, (size_t)(path - list - 1), controller) ? 1 : 0;
		length = strcspn(path + 1, "\n");
		if (version == 0 || hierarchy->version == 1)
			continue;
		if (length >= sizeof hierarchy->group) {
			reader->too_many = 1; /* not to be judged by half */
			continue;
		}
		hierarchy->version = version;
		memcpy(hierarchy->group, path + 1, length);
		hierarchy->group[length] = '\0';
	}
}

/* Fields of a mountinfo line: "31 23 0:28 ROOT POINT options … - TYPE source SUPEROPTIONS". */
struct mount {
	char root[BUDGET_PATH_BYTES], point[BUDGET_PATH_BYTES], type[32], options[256];
};

static int parse_mount(const char *line, struct mount *ret_mount)
{
	const char *end = strchr(line, '\n'), *dash = strstr(line, " - ");

	if (dash == NULL || (end != NULL && dash > end))
		return -ENOENT;
	if (sscanf(line, "%*s %*s %*s %1023s %1023s", ret_mount->root, ret_mount->point) != 2)
		return -ENOENT;
	return sscanf(dash + 3, "%31s %*s %255s", ret_mount->type, ret_mount->options) == 2 ? 0 : -ENOENT;
}

static int is_mount_of(const struct mount *mount, const struct hierarchy *hierarchy, const char *controller)
{
	if (hierarchy->version == 2)
		return strcmp(mount->type, "cgroup2") == 0;
	return strcmp(mount->type, "cgroup") == 0 && has_word(mount->options, strlen(mount->options), controller);
}

/* In a container the mount may begin inside the hierarchy; what lies above it is not ours to see. */
static void strip_mount_root(struct hierarchy *hierarchy, const char *root)
{
	size_t length = strlen(root);

	if (strcmp(root, "/") == 0)
		return;
	if (strncmp(hierarchy->group, root, length) == 0 &&
	    (hierarchy->group[length] == '/' || hierarchy->group[length] == '\0'))
		memmove(hierarchy->group, hierarchy->group + length, strlen(hierarchy->group + length) + 1);
	else
		hierarchy->group[0] = '\0';
}

static int find_mount(struct reader *reader, const char *controller, struct hierarchy *hierarchy)
{
	struct mount mount;

	if (read_text(reader, "/proc/self/mountinfo") < 0)
		return -ENOENT;
	for (const char *line = reader->text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (parse_mount(line, &mount) < 0 || !is_mount_of(&mount, hierarchy, controller))
			continue;
		(void)snprintf(hierarchy->top, sizeof hierarchy->top, "%s", mount.point);
		strip_mount_root(hierarchy, mount.root);
		if (hierarchy->version == 2 &&
		    has_word(mount.options, strlen(mount.options), "memory_hugetlb_accounting"))
			reader->inputs->charges_hugetlb = 1;
		return 0;
	}
	return -ENOENT;
}

/* Without a mountinfo: where every distribution puts them. */
static void assume_mount(struct reader *reader, const char *controller, struct hierarchy *hierarchy)
{
	if (hierarchy->version == 1)
		(void)snprintf(hierarchy->top, sizeof hierarchy->top, "/sys/fs/cgroup/%s", controller);
	else if (read_text(reader, "/sys/fs/cgroup/unified/cgroup.controllers") >= 0)
		(void)snprintf(hierarchy->top, sizeof hierarchy->top, "/sys/fs/cgroup/unified");
	else
		(void)snprintf(hierarchy->top, sizeof hierarchy->top, "/sys/fs/cgroup");
}

static void find_hierarchy(struct reader *reader, const char *controller, struct hierarchy *ret_hierarchy)
{
	memset(ret_hierarchy, 0, sizeof *ret_hierarchy);
	if (read_text(reader, "/proc/self/cgroup") < 0)
		return;
	find_group(reader, controller, ret_hierarchy);
	if (ret_hierarchy->version == 0)
		return;
	if (find_mount(reader, controller, ret_hierarchy) < 0)
		assume_mount(reader, controller, ret_hierarchy);
	/* A group outside of our cgroup namespace is shown as "/../…"; only the top is known then. */
	if (ret_hierarchy->group[0] != '/' || strcmp(ret_hierarchy->group, "/") == 0 ||
	    strstr(ret_hierarchy->group, "/..") != NULL)
		ret_hierarchy->group[0] = '\0';
}

/* ---- control groups: limits ---- */

static void add_limit(struct reader *reader, enum budget_limit_kind kind, const char *directory, const char *name,
		      uint64_t limit_bytes, uint64_t used_bytes)
{
	struct budget_inputs *in = reader->inputs;
	struct budget_limit *limit = &in->limit[in->limit_count];

	if (limit_bytes == BUDGET_NONE)
		return;
	if (in->limit_count == BUDGET_LIMITS_MAX) {
		reader->too_many = 1;
		return;
	}
	limit->kind = kind;
	limit->limit_bytes = limit_bytes;
	limit->used_bytes = used_bytes;
	if (snprintf(limit->file, sizeof limit->file, "%s/%s", directory, name) >= (int)sizeof limit->file)
		reader->too_many = 1;
	in->limit_count++;
}

/* Usage without the page cache that nobody has used for a while: the kernel drops that before it refuses anything. */
static uint64_t read_memory_used(struct reader *reader, const char *directory, int version)
{
	uint64_t used = 0, inactive = 0;

	if (read_number(reader, directory, version == 2 ? "memory.current" : "memory.usage_in_bytes", &used) < 0 ||
	    used == BUDGET_NONE)
		return 0;
	if (read_in(reader, directory, "memory.stat") >= 0)
		(void)find_number(reader->text, version == 2 ? "inactive_file" : "total_inactive_file", &inactive);
	return used > inactive ? used - inactive : 0;
}

static void read_memory_limits(struct reader *reader, const char *directory, int version)
{
	static const char *const names[][2] = {{"memory.limit_in_bytes", NULL}, {"memory.max", "memory.high"}};

	for (int i = 0; i < 2; i++) {
		const char *name = names[version - 1][i];
		uint64_t limit;

		if (name != NULL && read_number(reader, directory, name, &limit) == 0 && limit != BUDGET_NONE)
			add_limit(reader, BUDGET_LIMIT_MEMORY, directory, name, limit,
				  read_memory_used(reader, directory, version));
	}
}

static void read_hugetlb_limits(struct reader *reader, const char *directory, int version)
{
	static const struct {
		enum budget_limit_kind kind;
		const char *size;
	} sizes[] = {{BUDGET_LIMIT_HUGE_2M, "2MB"}, {BUDGET_LIMIT_HUGE_1G, "1GB"}};
	static const char *const kinds[] = {"", "rsvd."};

	for (unsigned i = 0; i < 4; i++) {
		const char *size = sizes[i / 2].size, *rsvd = kinds[i % 2];
		char limit_name[64], used_name[64];
		uint64_t limit, used = 0;

		(void)snprintf(limit_name, sizeof limit_name, "hugetlb.%s.%s%s", size, rsvd,
			       version == 2 ? "max" : "limit_in_bytes");
		(void)snprintf(used_name, sizeof used_name, "hugetlb.%s.%s%s", size, rsvd,
			       version == 2 ? "current" : "usage_in_bytes");
		if (read_number(reader, directory, limit_name, &limit) < 0 || limit == BUDGET_NONE)
			continue;
		if (read_number(reader, directory, used_name, &used) < 0)
			used = 0;
		add_limit(reader, sizes[i / 2].kind, directory, limit_name, limit, used);
	}
}

/* From our own group up to the top of what is mounted: each of them binds. */
static void read_ancestors(struct reader *reader, struct hierarchy *hierarchy,
			   void (*read_limits)(struct reader *reader, const char *directory, int version))
{
	char directory[2 * BUDGET_PATH_BYTES - 64];

	for (unsigned i = 0; i < ANCESTORS_MAX; i++) {
		char *slash = strrchr(hierarchy->group, '/');

		if (snprintf(directory, sizeof directory, "%s%s", hierarchy->top, hierarchy->group) >=
		    (int)sizeof directory)
			break;
		read_limits(reader, directory, hierarchy->version);
		if (slash == NULL)
			return;
		*slash = '\0';
	}
	reader->too_many = 1;
}

int budget_read_inputs(const char *root, struct budget_inputs *ret_inputs, char *message, size_t message_bytes)
{
	struct budget_inputs *inputs = calloc(1, sizeof *inputs);
	struct reader *reader = calloc(1, sizeof *reader);
	struct hierarchy memory, hugetlb;
	int r = -ENOMEM;

	if (inputs == NULL || reader == NULL)
		goto out;
	reader->root = root;
	reader->inputs = inputs;
	r = read_meminfo(reader, message, message_bytes);
	if (r < 0)
		goto out;
	read_huge_pages(reader);
	find_hierarchy(reader, "memory", &memory);
	if (memory.version != 0)
		read_ancestors(reader, &memory, read_memory_limits);
	find_hierarchy(reader, "hugetlb", &hugetlb);
	if (hugetlb.version != 0)
		read_ancestors(reader, &hugetlb, read_hugetlb_limits);
	if (reader->too_many) {
		r = cnre_message(
			message, message_bytes, -E2BIG,
			"control groups nested too deeply to judge: more than %u limits, or a path beyond %u bytes",
			BUDGET_LIMITS_MAX, BUDGET_PATH_BYTES);
		goto out;
	}
	*ret_inputs = *inputs;
out:
	free(inputs);
	free(reader);
	return r;
}

int budget_memory_group(const char *root, char *ret_directory, size_t directory_bytes)
{
	struct reader *reader = calloc(1, sizeof *reader);
	struct hierarchy memory;
	int length, r;

	if (reader == NULL)
		return -ENOMEM;
	reader->root = root;
	find_hierarchy(reader, "memory", &memory);
	r = reader->too_many ? -E2BIG : memory.version == 0 ? -ENOENT : memory.version;
	free(reader);
	if (r < 0)
		return r;
	length = snprintf(ret_directory, directory_bytes, "%s%s", memory.top, memory.group);
	return length < 0 || (size_t)length >= directory_bytes ? -E2BIG : r;
}
