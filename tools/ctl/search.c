/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a manager; see search.h. */
#include "tools/ctl/search.h"

#include "tools/ctl/answer.h"
#include "tools/ctl/connection.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the user's directories hold so far. */
struct found {
	int connected; /* to the first; -1: none yet */
	int count;
	char path[SEARCH_PATH_BYTES];     /* of the first */
	char list[CTL_MESSAGE_BYTES / 2]; /* of all, for people */
};

static void add_found(struct found *found, const char *path, int connected)
{
	size_t used = strlen(found->list);

	(void)snprintf(found->list + used, sizeof found->list - used, "%s%s", found->count > 0 ? ", " : "", path);
	found->count++;
	if (found->count > 1) {
		(void)close(connected);
		return;
	}
	found->connected = connected;
	memcpy(found->path, path, strlen(path) + 1);
}

static int ends_in_sock(const char *name)
{
	size_t length = strlen(name);

	return length > 5 && name[0] != '.' && strcmp(name + length - 5, ".sock") == 0;
}

static int is_ours_alone(int directory)
{
	struct stat status;

	return fstat(directory, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 022) == 0;
}

static DIR *open_private_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *directory;

	if (fd < 0)
		return NULL;
	directory = is_ours_alone(fd) ? fdopendir(fd) : NULL;
	if (directory == NULL)
		(void)close(fd);
	return directory;
}

static void look_into(const char *path, struct found *found)
{
	DIR *directory = open_private_directory(path);
	struct dirent *entry;
	int looked = 0;

	if (directory == NULL)
		return;
	while (looked < SEARCH_SOCKETS_MAX && (entry = readdir(directory)) != NULL) {
		char candidate[SEARCH_PATH_BYTES];
		int length, connected;

		if (!ends_in_sock(entry->d_name))
			continue;
		looked++;
		length = snprintf(candidate, sizeof candidate, "%s/%s", path, entry->d_name);
		if (length < 0 || (size_t)length >= sizeof candidate)
			continue;
		connected = connection_open(candidate);
		if (connected >= 0)
			add_found(found, candidate, connected);
	}
	(void)closedir(directory);
}

static int connect_given(const char *path, char *ret_path, char message[CTL_MESSAGE_BYTES])
{
	char advice[CONNECTION_ADVICE_BYTES];
	int connected = connection_open(path);

	if (connected < 0) {
		connection_advice(path, connected, advice);
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.200s: %s", path, advice);
		return connected;
	}
	(void)snprintf(ret_path, SEARCH_PATH_BYTES, "%s", path);
	return connected;
}

/* Two names of one directory (XDG_RUNTIME_DIR is usually /run/user/UID) must not count its managers twice. */
static int is_repeated(const struct search_places *places, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (places->user[i] != NULL && strcmp(places->user[i], places->user[index]) == 0)
			return 1;
	return 0;
}

static int pick(const struct search_places *places, int system_error, const struct found *found, char *ret_path,
		char message[CTL_MESSAGE_BYTES])
{
	char advice[CONNECTION_ADVICE_BYTES];

	if (found->count == 1) {
		memcpy(ret_path, found->path, sizeof found->path);
		return found->connected;
	}
	if (found->count > 1) {
		(void)close(found->connected);
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%d managers answer (%s): choose one with --socket PATH",
			       found->count, found->list);
		return -ENOTUNIQ;
	}
	if (system_error != -ENOENT && system_error != -ECONNREFUSED) {
		connection_advice(places->system, system_error, advice);
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.200s: %s", places->system, advice);
		return system_error;
	}
	(void)snprintf(
		message, CTL_MESSAGE_BYTES,
		"no manager answers at %s nor in this user's directories: start cnre-managerd, or name its socket "
		"with --socket PATH",
		places->system);
	return -ENOENT;
}

int search_connect(const struct search_places *places, char *ret_path, char message[CTL_MESSAGE_BYTES])
{
	struct found found = {.connected = -1};
	int connected, r;

	if (places->given != NULL) {
		r = connect_given(places->given, ret_path, message);
		goto out;
	}
	connected = connection_open(places->system);
	if (connected >= 0) {
		(void)snprintf(ret_path, SEARCH_PATH_BYTES, "%s", places->system);
		return connected;
	}
	for (size_t i = 0; i < sizeof places->user / sizeof places->user[0]; i++)
		if (places->user[i] != NULL && !is_repeated(places, i))
			look_into(places->user[i], &found);
	r = pick(places, connected, &found, ret_path, message);
out:
	if (r < 0)
		answer_make_text_printable(message);
	return r;
}

void search_fill(struct search_places *ret_places, const char *given)
{
	static char texts[3][SEARCH_PATH_BYTES];
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	const char *variable = getenv("CNRE_SOCKET");
	unsigned long uid = (unsigned long)geteuid();

	*ret_places = (struct search_places){.given = given, .system = SEARCH_SYSTEM_SOCKET};
	if (given == NULL && variable != NULL && variable[0] != '\0')
		ret_places->given = variable;
	if (runtime != NULL && runtime[0] == '/' &&
	    snprintf(texts[0], sizeof texts[0], "%s/cnre", runtime) < (int)sizeof texts[0])
		ret_places->user[0] = texts[0];
	(void)snprintf(texts[1], sizeof texts[1], "/run/user/%lu/cnre", uid);
	(void)snprintf(texts[2], sizeof texts[2], "/tmp/cnre-%lu", uid);
	ret_places->user[1] = texts[1];
	ret_places->user[2] = texts[2];
}
