/* SPDX-License-Identifier: Apache-2.0 */
/* Storing and finding descriptors; see store.h. */
#include "manager/store.h"

#include "base/log.h"
#include "manager/keeper.h"
#include "manager/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_PASSED 3
#define KEEPER_OWN_FDS 96u /* of a keeper that hands over, beside two numbers for each that it keeps */

struct passed {
	char name[KEEP_NAME_BYTES];
	int fd; /* -1: taken */
};

struct store {
	enum store_kind kind;
	int socket; /* -1: STORE_NONE */
	int sign;   /* of a keeper that we started (struct keeper_link); -1: our exit status is enough */
	uint32_t fds_max;
	struct kept *kept;
	int is_slow; /* it did not take a message in time: nothing waits for it until it answers */
	int probe;   /* while slow: hangs up when all that was sent is taken; -1: not sent yet */
	int is_lost; /* the keeper ended, and there is no other */
	uint32_t passed_count;
	struct passed *passed;
};

/* ---- what was passed ---- */

static int read_number(const char *name, long high)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (text == NULL || *text == '\0')
		return -ENOENT;
	value = strtol(text, &end, 10);
	return *end != '\0' || value < 0 || value > high ? -EINVAL : (int)value;
}

static void name_passed(struct store *store, const char *names)
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		size_t length = names != NULL ? strcspn(names, ":") : 0;

		(void)snprintf(store->passed[i].name, sizeof store->passed[i].name, "%.*s",
			       (int)(length < KEEP_NAME_BYTES ? length : 0), names != NULL ? names : "");
		if (names != NULL)
			names = names[length] == ':' ? names + length + 1 : NULL;
	}
}

static int read_passed(struct store *store)
{
	int pid = read_number("LISTEN_PID", INT32_MAX), count = read_number("LISTEN_FDS", STORE_FDS_MAX);

	if (pid != getpid() || count <= 0)
		return 0;
	store->passed = calloc((size_t)count, sizeof *store->passed);
	if (store->passed == NULL)
		return -ENOMEM;
	store->passed_count = (uint32_t)count;
	for (uint32_t i = 0; i < store->passed_count; i++) {
		store->passed[i].fd = FIRST_PASSED + (int)i;
		(void)fcntl(store->passed[i].fd, F_SETFD, FD_CLOEXEC);
	}
	name_passed(store, getenv("LISTEN_FDNAMES"));
	/* Whatever we start is not meant. */
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	return 0;
}

int store_take(struct store *store, const char *name)
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		struct passed *passed = &store->passed[i];

		if (passed->fd >= 0 && strcmp(passed->name, name) == 0) {
			int fd = passed->fd;

			passed->fd = -1;
			return fd;
		}
	}
	return -ENOENT;
}

int store_peek(const struct store *store, const char *name)
{
	for (uint32_t i = 0; i < store->passed_count; i++)
		if (store->passed[i].fd >= 0 && strcmp(store->passed[i].name, name) == 0)
			return store->passed[i].fd;
	return -ENOENT;
}

static int is_listening(int fd)
{
	int listening = 0;
	socklen_t length = sizeof listening;

	return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening;
}

static int socket_option(int fd, int option)
{
	int value = -1;
	socklen_t length = sizeof value;

	return getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

/* Accept=yes names it; who passes descriptors without names passes nothing of ours. */
static int is_connection(const struct passed *passed)
{
	return (strcmp(passed->name, "connection") == 0 || passed->name[0] == '\0') && !is_listening(passed->fd);
}

int store_check_passed(const struct store *store, char message[STORE_MESSAGE_BYTES])
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		const struct passed *passed = &store->passed[i];

		if (is_connection(passed)) {
			(void)snprintf(
				message, STORE_MESSAGE_BYTES,
				"passed was a connection and no listening socket: leave out Accept=yes or --accept");
			return -EPROTOTYPE;
		}
		if (is_listening(passed->fd) && (socket_option(passed->fd, SO_DOMAIN) != AF_UNIX ||
						 socket_option(passed->fd, SO_TYPE) != SOCK_SEQPACKET)) {
			(void)snprintf(
				message, STORE_MESSAGE_BYTES,
				"the passed socket is no Unix socket of packets: use ListenSequentialPacket= or --seqpacket");
			return -EPROTOTYPE;
		}
	}
	return 0;
}

int store_take_listener(struct store *store)
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		int fd = store->passed[i].fd;

		if (!is_listening(fd))
			continue;
		store->passed[i].fd = -1;
		return fd;
	}
	return -ENOENT;
}

int store_name_at(const struct store *store, uint32_t index, const char **ret_name)
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		if (store->passed[i].fd < 0)
			continue;
		if (index-- == 0) {
			*ret_name = store->passed[i].name;
			return 1;
		}
	}
	return 0;
}

uint32_t store_inherited(const struct store *store)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < store->passed_count; i++)
		count += store->passed[i].fd >= 0;
	return count;
}

void store_drop_rest(struct store *store)
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		if (store->passed[i].fd < 0)
			continue;
		store_remove(store, store->passed[i].name);
		(void)close(store->passed[i].fd);
		store->passed[i].fd = -1;
	}
}

static int is_lasting(const struct passed *passed)
{
	return strcmp(passed->name, "listen") == 0 || strcmp(passed->name, "lock") == 0 || is_listening(passed->fd);
}

void store_drop_inherited(struct store *store)
{
	for (uint32_t i = 0; i < store->passed_count; i++) {
		struct passed *passed = &store->passed[i];

		if (is_lasting(passed))
			continue;
		store_remove(store, passed->name);
		if (passed->fd >= 0)
			(void)close(passed->fd);
		passed->fd = -1;
	}
}

/* ---- whom to tell ---- */

static int connect_notify(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);
	int fd;

	if ((path[0] != '/' && path[0] != '@') || length >= sizeof address.sun_path)
		return -EINVAL;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) <
	    0) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return fd;
}

/* A keeper that was stopped must not stop us: what it does not take in time is not stored, and said so. */
static void bound_sends(int socket)
{
	struct timeval bound = {.tv_sec = STORE_TIMEOUT_MS / 1000, .tv_usec = STORE_TIMEOUT_MS % 1000 * 1000};

	(void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

/* A keeper has the same limit as we, raised as far as it goes; it needs two numbers a descriptor to start a manager. */
static uint32_t most_of_keeper(void)
{
	struct rlimit limit;
	rlim_t most;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max / 2 > STORE_FDS_MAX + KEEPER_OWN_FDS)
		return STORE_FDS_MAX;
	most = limit.rlim_max / 2;
	return most > KEEPER_OWN_FDS ? (uint32_t)(most - KEEPER_OWN_FDS) : 0;
}

/* FDSTORE is the unit's FileDescriptorStoreMax, and said by systemd 254 and later; the unit that comes with us has ours. */
static uint32_t most_kept(const struct store *store)
{
	int most = read_number("FDSTORE", STORE_FDS_MAX);

	if (store->kind == STORE_KEEPER)
		return most_of_keeper();
	return most >= 0 ? (uint32_t)most : STORE_FDS_MAX;
}

static void find_keeper(struct store *store)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	int fd = read_number(STORE_KEEPER_ENVIRONMENT, INT32_MAX);
	struct stat status;

	if (fd >= FIRST_PASSED && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
		bound_sends(fd);
		store->socket = fd;
		store->kind = STORE_KEEPER;
	} else if (notify != NULL) {
		store->socket = connect_notify(notify);
		store->kind = store->socket >= 0 ? STORE_SYSTEMD : STORE_NONE;
	}
	(void)unsetenv(STORE_KEEPER_ENVIRONMENT);
}

static void close_store(struct store *store)
{
	if (store->socket >= 0)
		(void)close(store->socket);
	if (store->sign >= 0)
		(void)close(store->sign);
	if (store->probe >= 0)
		(void)close(store->probe);
}

/* What an earlier incarnation stored is there still. */
static int note_passed(struct store *store)
{
	int r = 0;

	for (uint32_t i = 0; i < store->passed_count && r == 0; i++)
		r = kept_set(store->kept, store->passed[i].name, KEPT_THERE);
	return r;
}

int store_open(struct store **ret_store)
{
	struct store *store = calloc(1, sizeof *store);
	int r;

	if (store == NULL)
		return -ENOMEM;
	store->socket = store->sign = store->probe = -1;
	r = kept_open(&store->kept);
	if (r == 0)
		r = read_passed(store);
	if (r == 0)
		r = note_passed(store);
	if (r < 0) {
		(void)store_close(store);
		return r;
	}
	find_keeper(store);
	store->fds_max = most_kept(store);
	*ret_store = store;
	return 0;
}

struct store *store_close(struct store *store)
{
	if (store == NULL)
		return NULL;
	for (uint32_t i = 0; i < store->passed_count; i++)
		if (store->passed[i].fd >= 0)
			(void)close(store->passed[i].fd);
	close_store(store);
	store->kept = kept_close(store->kept);
	free(store->passed);
	free(store);
	return NULL;
}

enum store_kind store_kind(const struct store *store)
{
	return store->kind;
}

int store_keeper_socket(const struct store *store)
{
	return store->kind == STORE_KEEPER ? store->socket : -1;
}

void store_use(struct store *store, const struct keeper_link *keeper)
{
	close_store(store);
	if (keeper->socket >= 0)
		bound_sends(keeper->socket);
	store->socket = keeper->socket;
	store->sign = keeper->sign;
	store->kind = keeper->socket >= 0 ? STORE_KEEPER : STORE_NONE;
	store->probe = -1;
	store->is_slow = 0;
	store->is_lost = keeper->socket < 0;
	store->fds_max = most_kept(store);
	kept_clear(store->kept);
}

/* ---- telling it ---- */

static void let_wait(const struct store *store, int waits)
{
	(void)fcntl(store->socket, F_SETFL, waits ? 0 : O_NONBLOCK);
}

/* One time-out is enough for all that follows: hundreds of descriptors, each waited for, would be minutes. */
static void call_slow(struct store *store)
{
	if (store->is_slow)
		return;
	store->is_slow = 1;
	let_wait(store, 0);
	cnre_log(
		CNRE_LOG_ERROR,
		"store: whoever keeps this manager's descriptors does not answer: until it does, new clients are refused, and "
		"what changes would not survive this manager; is the process cnre-keeper stopped? kill -CONT it");
}

static int say(struct store *store, const char *text, const int *fds, size_t fd_count)
{
	int r = keep_send(store->socket, text, fds, fd_count);

	if (r != -EAGAIN)
		return r;
	call_slow(store);
	return -ETIMEDOUT;
}

static int fits(const struct store *store, uint32_t fds, size_t name_bytes)
{
	return kept_there(store->kept) + fds <= store->fds_max &&
	       kept_name_bytes(store->kept) + name_bytes <= KEEP_NAMES_BYTES_MAX;
}

int store_put(struct store *store, const char *name, int fd)
{
	enum kept_state before;
	char text[KEEP_TEXT_MAX];
	int r = 0;

	if (store->kind == STORE_NONE)
		return 0;
	before = kept_state(store->kept, name);
	if (before != KEPT_THERE && before != KEPT_STALE && !fits(store, 1, strlen(name) + 1))
		r = -ENOSPC;
	if (r == 0 && before == KEPT_NOT)
		r = kept_set(store->kept, name, KEPT_MISSING); /* room for it, before anything is sent */
	/* FDPOLL=0: sockets, pidfds and fences stay although they hang up; what that means is ours to decide. */
	(void)snprintf(text, sizeof text, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s\n", name);
	if (r == 0)
		r = say(store, text, &fd, 1);
	(void)kept_set(store->kept, name, r == 0 ? KEPT_THERE : KEPT_MISSING);
	return r;
}

void store_remove(struct store *store, const char *name)
{
	enum kept_state before = kept_state(store->kept, name);
	char text[KEEP_TEXT_MAX];
	int r = 0;

	if (store->kind == STORE_NONE)
		return;
	(void)snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%s\n", name);
	if (before == KEPT_THERE || before == KEPT_STALE)
		r = say(store, text, NULL, 0);
	(void)kept_set(store->kept, name, r == 0 ? KEPT_NOT : KEPT_STALE);
}

int store_has(const struct store *store, const char *name)
{
	return kept_state(store->kept, name) == KEPT_THERE;
}

int store_has_room(const struct store *store, uint32_t fds)
{
	uint32_t others = store->fds_max / STORE_OTHERS_SHARE;

	if (others > STORE_OTHERS_MAX)
		others = STORE_OTHERS_MAX;
	return store->kind == STORE_NONE || fits(store, fds + others, (size_t)(fds + others) * KEEP_NAME_BYTES);
}

void store_get_status(const struct store *store, struct store_status *ret_status)
{
	*ret_status = (struct store_status){
		.kind = store->kind,
		.kept = kept_there(store->kept),
		.missing = kept_missing(store->kept),
		.fds_max = store->fds_max,
		.is_slow = store->is_slow,
		.is_lost = store->is_lost,
	};
}

/* ---- whether it has taken everything ---- */

/* The keeper closes the pipe's write end when it gets to this message: then everything before was taken (sd_notify(3)). */
static int send_barrier(struct store *store, int *ret_fd)
{
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	r = say(store, "BARRIER=1", &fds[1], 1);
	(void)close(fds[1]);
	if (r < 0)
		(void)close(fds[0]);
	else
		*ret_fd = fds[0];
	return r;
}

static int has_hung_up(int fd, int timeout_ms)
{
	struct pollfd end = {.fd = fd, .events = 0};

	return poll(&end, 1, timeout_ms) == 1;
}

int store_barrier(struct store *store)
{
	int fd, r;

	if (store->kind == STORE_NONE)
		return 0;
	if (store->is_slow)
		return -ETIMEDOUT;
	r = send_barrier(store, &fd);
	if (r < 0)
		return r;
	if (has_hung_up(fd, STORE_TIMEOUT_MS)) {
		(void)close(fd);
		return 0;
	}
	call_slow(store);
	store->probe = fd;
	return -ETIMEDOUT;
}

static void remove_stale(struct store *store)
{
	const char *found;
	char name[KEEP_NAME_BYTES];

	while ((found = kept_find(store->kept, KEPT_STALE)) != NULL) {
		(void)snprintf(name, sizeof name, "%s", found);
		store_remove(store, name);
		if (kept_state(store->kept, name) == KEPT_STALE)
			break; /* next time */
	}
}

/* Of a keeper that died the messages are gone, and with them the other ends: that is no answer. */
int store_answers_again(struct store *store)
{
	if (!store->is_slow || has_hung_up(store->socket, 0))
		return 0;
	if (store->probe < 0 && send_barrier(store, &store->probe) < 0)
		return 0;
	if (!has_hung_up(store->probe, 0) || has_hung_up(store->socket, 0))
		return 0;
	(void)close(store->probe);
	store->probe = -1;
	store->is_slow = 0;
	let_wait(store, 1);
	remove_stale(store);
	return 1;
}

void store_notify(struct store *store, const char *text)
{
	if (store->kind != STORE_NONE)
		(void)say(store, text, NULL, 0); /* nobody to complain to */
}

/* A counter is never full, and never takes time. */
void store_stopping(struct store *store)
{
	uint64_t one = 1;

	if (store->sign >= 0)
		(void)!write(store->sign, &one, sizeof one);
	store_notify(store, "STOPPING=1");
}
