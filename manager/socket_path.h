/* SPDX-License-Identifier: Apache-2.0 */
/* A listening Unix socket at a path that exactly one manager owns: flock, bind, mode, and "is it still ours?". */
#ifndef CNRE_MANAGER_SOCKET_PATH_H
#define CNRE_MANAGER_SOCKET_PATH_H

#include <sys/types.h>

struct socket_path {
	int fd;                           /* listening, non-blocking, CLOEXEC */
	int lock_fd;                      /* PATH.lock, flock held for life; -1 with a passed socket */
	int type;                         /* SOCK_SEQPACKET, or SOCK_STREAM of metrics */
	dev_t device;
	ino_t inode;                      /* of the bound path */
	char path[108];
};

/* See listener_open. A stale socket is replaced, and only under the lock. */
int socket_path_open(struct socket_path *ret_socket, const char *path, unsigned mode, const char *group, char message[256]);
/* The same, of a stream: for metrics. */
int socket_path_open_stream(struct socket_path *ret_socket, const char *path, unsigned mode, const char *group, char message[256]);
/*
 * A socket that listens already, from systemd's socket unit or the former manager; lock_fd -1: its owner is systemd. With
 * a lock: device and inode of the path as it was bound, inode 0 if that is not known; then what is there is taken for it.
 */
void socket_path_adopt(struct socket_path *ret_socket, const char *path, int listen_fd, int lock_fd, dev_t device,
		       ino_t inode);
/*
 * Binds the path, which is not ours any more, again, as socket_path_open would: another socket then listens, and if the
 * lock file was removed another one is locked. What another program listens on, or what is no socket, is left alone. 0, or
 * -errno: socket and lock are as they were.
 */
int socket_path_bind_again(struct socket_path *socket, unsigned mode, const char *group, char message[256]);
/* The path still names our inode. */
int socket_path_is_ours(const struct socket_path *socket);
/* Unlinks the path if it is ours; the socket stays open. */
void socket_path_unlink(const struct socket_path *socket);
void socket_path_close(struct socket_path *socket);

#endif
