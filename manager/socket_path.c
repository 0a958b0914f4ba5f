/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owning a socket path; see socket_path.h. The lock file stays behind on purpose: unlinking it would let two managers
 * lock two inodes of one name. It holds the pid of the owner, for the message of the one who comes second.
 */
#include "manager/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128
#define MESSAGE_BYTES 256

static int say(char *message, int error, const char *what, const char *path, const char *advice)
{
	(void)snprintf(message, MESSAGE_BYTES, "%s %.100s: %s: %s", what, path, strerror(-error), advice);
	return error;
}

static void read_owner(int fd, char *text, size_t bytes)
{
	ssize_t n = pread(fd, text, bytes - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

static int write_owner(int fd)
{
	char owner[32];

	(void)snprintf(owner, sizeof owner, "%d\n", (int)getpid());
	return ftruncate(fd, 0) < 0 || pwrite(fd, owner, strlen(owner), 0) < 0 ? -1 : 0;
}

static int take_lock(struct socket_path *socket, char *message)
{
	char name[128], owner[32];
	int r;

	(void)snprintf(name, sizeof name, "%s.lock", socket->path);
	socket->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (socket->lock_fd < 0)
		return say(message, -errno, "cannot open", name,
			   "make its directory and give it to the manager's user, or pass another path");
	if (flock(socket->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		read_owner(socket->lock_fd, owner, sizeof owner);
		if (r == -EWOULDBLOCK) {
			(void)snprintf(
				message, MESSAGE_BYTES,
				"%.100s is served by another manager, pid %s: use it, stop it, or pass another path",
				socket->path, owner[0] != '\0' ? owner : "unknown");
			return -EBUSY;
		}
		return say(message, r, "cannot lock", name, "put the socket on a local file system");
	}
	if (write_owner(socket->lock_fd) < 0)
		return say(message, -errno, "cannot write", name, "free space on its file system");
	return 0;
}

static int set_access(const struct socket_path *socket, unsigned mode, const char *group, char *message)
{
	const struct group *entry;
	char *end;
	gid_t gid;

	if (group != NULL && group[0] != '\0') {
		entry = getgrnam(group);
		gid = entry != NULL ? entry->gr_gid : (gid_t)strtoul(group, &end, 10);
		if (entry == NULL && *end != '\0')
			return say(message, -ENOENT, "no group", group, "create it or pass another --socket-group");
		if (chown(socket->path, (uid_t)-1, gid) < 0)
			return say(message, -errno, "cannot give to its group", socket->path,
				   "be a member of it, or pass another --socket-group");
	}
	if (chmod(socket->path, mode) < 0)
		return say(message, -errno, "cannot set the mode of", socket->path, "see its directory");
	return 0;
}

/* Removes a socket that a killed manager left. We hold the lock, so one that answers belongs to another program; nor is a file ours. */
static int remove_stale(const struct socket_path *path, const struct sockaddr_un *address, char *message)
{
	struct stat status;
	int r;

	if (lstat(path->path, &status) < 0)
		return errno == ENOENT ? 0
				       : say(message, -errno, "cannot see", path->path,
					     "make its directory, or pass another path");
	if (!S_ISSOCK(status.st_mode))
		return say(message, -EEXIST, "no socket is at", path->path, "remove it, or pass another path");
	r = connect(path->fd, (const struct sockaddr *)address, sizeof *address) < 0 ? -errno : 0;
	if (r != -ECONNREFUSED)
		return say(message, -EADDRINUSE, "cannot take", path->path,
			   "another program answers there: stop it, or pass another path");
	return unlink(path->path) < 0 ? say(message, -errno, "cannot remove the stale", path->path, "remove it") : 0;
}

static int bind_path(struct socket_path *path, unsigned mode, const char *group, char *message)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat status;
	mode_t before;
	int r;

	memcpy(address.sun_path, path->path, strlen(path->path) + 1);
	path->fd = socket(AF_UNIX, path->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (path->fd < 0)
		return say(message, -errno, "cannot make a socket for", path->path, "see the limits of the process");
	r = remove_stale(path, &address, message);
	if (r < 0)
		return r;
	before = umask(0177); /* nobody connects before mode and group are set */
	r = bind(path->fd, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
	(void)umask(before);
	if (r < 0)
		return say(message, r, "cannot bind", path->path,
			   "make its directory writable for the manager, or pass another path");
	r = set_access(path, mode, group, message);
	if (r == 0 && (listen(path->fd, BACKLOG) < 0 || stat(path->path, &status) < 0))
		r = say(message, -errno, "cannot listen on", path->path, "see its directory");
	if (r < 0) {
		(void)unlink(path->path);
		return r;
	}
	path->device = status.st_dev;
	path->inode = status.st_ino;
	return 0;
}

void socket_path_adopt(struct socket_path *ret_socket, const char *path, int listen_fd, int lock_fd, dev_t device,
		       ino_t inode)
{
	struct socket_path socket = {
		.fd = listen_fd, .lock_fd = lock_fd, .type = SOCK_SEQPACKET, .device = device, .inode = inode};
	struct sockaddr_un address;
	socklen_t length = sizeof address;
	struct stat status;

	(void)snprintf(socket.path, sizeof socket.path, "%s", path);
	(void)fcntl(listen_fd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(listen_fd, F_SETFL, O_NONBLOCK);
	if (lock_fd >= 0)
		(void)write_owner(lock_fd); /* only who comes second reads it */
	if (getsockname(listen_fd, (struct sockaddr *)&address, &length) == 0 &&
	    length > offsetof(struct sockaddr_un, sun_path))
		(void)snprintf(socket.path, sizeof socket.path, "%.*s", (int)(sizeof address.sun_path - 1),
			       address.sun_path);
	/* A socket unit may have bound its path anew since: what the former manager knew is of its own socket only. */
	if ((lock_fd < 0 || inode == 0) && stat(socket.path, &status) == 0) {
		socket.device = status.st_dev;
		socket.inode = status.st_ino;
	}
	*ret_socket = socket;
}

/* Whoever removed the socket may have removed the lock file, too, and then ours keeps nobody away. */
static int lock_has_its_name(const struct socket_path *socket)
{
	struct stat named, held;
	char name[128];

	(void)snprintf(name, sizeof name, "%s.lock", socket->path);
	return stat(name, &named) == 0 && fstat(socket->lock_fd, &held) == 0 && named.st_dev == held.st_dev &&
	       named.st_ino == held.st_ino;
}

int socket_path_bind_again(struct socket_path *socket, unsigned mode, const char *group, char message[MESSAGE_BYTES])
{
	struct socket_path next = *socket;
	int keeps_lock = lock_has_its_name(socket), r;

	next.fd = -1;
	r = keeps_lock ? 0 : take_lock(&next, message);
	if (r == 0)
		r = bind_path(&next, mode, group, message);
	if (r < 0) {
		if (keeps_lock)
			next.lock_fd = -1;
		socket_path_close(&next);
		return r;
	}
	(void)close(socket->fd); /* who connected and was not accepted yet reads EOF, and starts over */
	if (!keeps_lock)
		(void)close(socket->lock_fd);
	*socket = next;
	return 0;
}

static int open_path(struct socket_path *ret_socket, int type, const char *path, unsigned mode, const char *group,
		     char message[MESSAGE_BYTES])
{
	struct socket_path socket = {.fd = -1, .lock_fd = -1, .type = type};
	int r;

	if (strlen(path) >= sizeof socket.path) {
		(void)snprintf(message, MESSAGE_BYTES,
			       "the socket path is longer than %zu bytes: pass a shorter path",
			       sizeof socket.path - 1);
		return -ENAMETOOLONG;
	}
	(void)snprintf(socket.path, sizeof socket.path, "%s", path);
	r = take_lock(&socket, message);
	if (r == 0)
		r = bind_path(&socket, mode, group, message);
	if (r < 0) {
		socket_path_close(&socket);
		return r;
	}
	*ret_socket = socket;
	return 0;
}

int socket_path_open(struct socket_path *ret_socket, const char *path, unsigned mode, const char *group,
		     char message[MESSAGE_BYTES])
{
	return open_path(ret_socket, SOCK_SEQPACKET, path, mode, group, message);
}

int socket_path_open_stream(struct socket_path *ret_socket, const char *path, unsigned mode, const char *group,
			    char message[MESSAGE_BYTES])
{
	return open_path(ret_socket, SOCK_STREAM, path, mode, group, message);
}

int socket_path_is_ours(const struct socket_path *socket)
{
	struct stat status;

	/* Passed, and bound where we cannot see it: its owner is the service manager. But with its lock it was ours, and gone
	 * when we came: nobody new can find us. */
	if (socket->inode == 0)
		return socket->lock_fd < 0;
	return stat(socket->path, &status) == 0 && status.st_dev == socket->device && status.st_ino == socket->inode;
}

void socket_path_unlink(const struct socket_path *socket)
{
	if (socket->lock_fd >= 0 && socket_path_is_ours(socket))
		(void)unlink(socket->path);
}

void socket_path_close(struct socket_path *socket)
{
	if (socket->fd >= 0)
		(void)close(socket->fd);
	if (socket->lock_fd >= 0)
		(void)close(socket->lock_fd); /* gives the lock back */
	socket->fd = socket->lock_fd = -1;
}
