/* SPDX-License-Identifier: Apache-2.0 */
/* One manager a path: lock, stale sockets, and paths that somebody else took. */
#include "manager/socket_path.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(manager_socket_path, .timeout = 20);

static char directory[64], path[100];

static void make_directory(void)
{
	(void)snprintf(directory, sizeof directory, "/tmp/cnre-test-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	(void)snprintf(path, sizeof path, "%s/socket", directory);
}

static void remove_directory(void)
{
	char lock[128];

	(void)snprintf(lock, sizeof lock, "%s.lock", path);
	(void)unlink(lock);
	(void)unlink(path);
	(void)rmdir(directory);
}

Test(manager_socket_path, a_second_manager_is_told_the_pid_of_the_first, .init = make_directory,
     .fini = remove_directory)
{
	struct socket_path first, second = {.fd = 77};
	char message[256] = "", pid[16];

	(void)snprintf(pid, sizeof pid, "pid %d", (int)getpid());
	cr_assert_eq(socket_path_open(&first, path, 0660, NULL, message), 0, "%s", message);
	cr_assert_eq(socket_path_open(&second, path, 0660, NULL, message), -EBUSY);
	cr_assert_eq(second.fd, 77, "output is untouched on failure");
	cr_assert_not_null(strstr(message, pid), "%s", message);
	cr_assert(socket_path_is_ours(&first), "the loser must not have replaced the socket");
	socket_path_close(&first);
}

Test(manager_socket_path, a_stale_socket_and_lock_file_are_taken_over, .init = make_directory, .fini = remove_directory)
{
	struct socket_path dead, next;
	char message[256] = "";

	cr_assert_eq(socket_path_open(&dead, path, 0660, NULL, message), 0);
	socket_path_close(&dead); /* as SIGKILL leaves it: path and lock file stay, the lock is gone */
	cr_assert_eq(access(path, F_OK), 0);
	cr_assert_eq(socket_path_open(&next, path, 0600, NULL, message), 0, "%s", message);
	cr_assert(socket_path_is_ours(&next));
	socket_path_close(&next);
}

Test(manager_socket_path, mode_is_as_asked, .init = make_directory, .fini = remove_directory)
{
	struct socket_path socket;
	struct stat status;
	char message[256] = "";

	cr_assert_eq(socket_path_open(&socket, path, 0640, NULL, message), 0, "%s", message);
	cr_assert_eq(stat(path, &status), 0);
	cr_assert_eq(status.st_mode & 0777, 0640);
	socket_path_close(&socket);
}

Test(manager_socket_path, somebody_elses_file_at_the_path_is_noticed_and_not_unlinked, .init = make_directory,
     .fini = remove_directory)
{
	struct socket_path socket;
	char message[256] = "";
	int fd;

	cr_assert_eq(socket_path_open(&socket, path, 0660, NULL, message), 0);
	cr_assert_eq(unlink(path), 0);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	(void)close(fd);
	cr_assert_not(socket_path_is_ours(&socket));
	socket_path_unlink(&socket);
	cr_assert_eq(access(path, F_OK), 0);
	socket_path_close(&socket);
}

static void make_somebody_elses_socket(int *ret_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*ret_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	cr_assert_eq(bind(*ret_fd, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(*ret_fd, 1), 0);
}

/* While nobody served somebody put another socket there. Taken for ours it would be unlinked at the end. */
Test(manager_socket_path, an_adopted_socket_is_known_by_its_inode_and_not_by_its_name, .init = make_directory,
     .fini = remove_directory)
{
	struct socket_path dead, next;
	char message[256] = "";
	int other;

	cr_assert_eq(socket_path_open(&dead, path, 0660, NULL, message), 0);
	socket_path_adopt(&next, path, dead.fd, dead.lock_fd, dead.device, dead.inode);
	cr_assert(socket_path_is_ours(&next));
	cr_assert_eq(unlink(path), 0);
	make_somebody_elses_socket(&other);
	socket_path_adopt(&next, path, dead.fd, dead.lock_fd, dead.device, dead.inode);
	cr_expect_not(socket_path_is_ours(&next));
	cr_expect_eq(socket_path_bind_again(&next, 0660, NULL, message), -EADDRINUSE);
	cr_expect_eq(next.fd, dead.fd, "the socket is as it was");
	socket_path_unlink(&next);
	cr_expect_eq(access(path, F_OK), 0);
	socket_path_adopt(&next, path, dead.fd, dead.lock_fd, 0, 0);
	cr_expect(socket_path_is_ours(&next), "an older manager's, which did not say");
	socket_path_adopt(&next, path, dead.fd, -1, dead.device, dead.inode);
	cr_expect(socket_path_is_ours(&next), "a socket unit's may have been bound anew");
	(void)close(other);
	socket_path_close(&dead);
}

Test(manager_socket_path, a_path_that_was_removed_is_bound_again_under_the_same_lock, .init = make_directory,
     .fini = remove_directory)
{
	struct socket_path socket, second;
	struct stat status;
	char message[256] = "";

	cr_assert_eq(socket_path_open(&socket, path, 0660, NULL, message), 0);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(socket_path_bind_again(&socket, 0640, NULL, message), 0, "%s", message);
	cr_expect(socket_path_is_ours(&socket));
	cr_assert_eq(stat(path, &status), 0);
	cr_expect_eq(status.st_mode & 0777, 0640);
	cr_expect_eq(socket_path_open(&second, path, 0660, NULL, message), -EBUSY);
	socket_path_unlink(&socket);
	cr_expect_neq(access(path, F_OK), 0);
	socket_path_close(&socket);
}

Test(manager_socket_path, a_lock_file_that_was_removed_is_locked_anew_before_the_path_is_bound_again,
     .init = make_directory, .fini = remove_directory)
{
	struct socket_path socket, second = {.fd = -1};
	char message[256] = "", lock[128];
	int fd, lock_fd;

	(void)snprintf(lock, sizeof lock, "%s.lock", path);
	cr_assert_eq(socket_path_open(&socket, path, 0660, NULL, message), 0);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(unlink(lock), 0);
	cr_assert_eq(socket_path_bind_again(&socket, 0660, NULL, message), 0, "%s", message);
	cr_expect_eq(socket_path_open(&second, path, 0660, NULL, message), -EBUSY);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(unlink(lock), 0);
	cr_assert_eq(socket_path_open(&second, path, 0660, NULL, message), 0, "the next one cannot see us");
	fd = socket.fd;
	lock_fd = socket.lock_fd;
	cr_expect_eq(socket_path_bind_again(&socket, 0660, NULL, message), -EBUSY, "two managers at one path");
	cr_expect(socket.fd == fd && socket.lock_fd == lock_fd && fcntl(lock_fd, F_GETFD) >= 0);
	cr_expect(socket_path_is_ours(&second));
	socket_path_close(&second);
	socket_path_close(&socket);
}

/* A --socket that was mistyped must not cost somebody a file. */
Test(manager_socket_path, a_file_at_the_path_is_refused_and_left_alone, .init = make_directory,
     .fini = remove_directory)
{
	struct socket_path socket = {.fd = 77};
	char message[256] = "";
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	(void)close(fd);
	cr_assert_eq(socket_path_open(&socket, path, 0660, NULL, message), -EEXIST);
	cr_assert_not_null(strstr(message, "pass another path"), "%s", message);
	cr_assert_eq(access(path, F_OK), 0);
	cr_assert_eq(socket.fd, 77, "output is untouched on failure");
}

Test(manager_socket_path, a_socket_that_another_program_listens_on_is_left_alone, .init = make_directory,
     .fini = remove_directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct socket_path ours;
	char message[256] = "";
	int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	cr_assert_eq(bind(other, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(other, 1), 0);
	cr_assert_eq(socket_path_open(&ours, path, 0660, NULL, message), -EADDRINUSE);
	cr_assert_not_null(strstr(message, "another program"), "%s", message);
	cr_assert_eq(access(path, F_OK), 0);
	(void)close(other);
	cr_assert_eq(socket_path_open(&ours, path, 0660, NULL, message), 0, "%s", message);
	socket_path_close(&ours);
}

Test(manager_socket_path, errors_say_what_to_do, .init = make_directory, .fini = remove_directory)
{
	struct socket_path socket;
	char message[256] = "", deep[100], longer[300];

	(void)snprintf(deep, sizeof deep, "%s/none/socket", directory);
	cr_assert_eq(socket_path_open(&socket, deep, 0660, NULL, message), -ENOENT);
	cr_assert_not_null(strstr(message, "make its directory"), "%s", message);
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	cr_assert_eq(socket_path_open(&socket, longer, 0660, NULL, message), -ENAMETOOLONG);
	cr_assert_eq(socket_path_open(&socket, path, 0660, "no such group here", message), -ENOENT);
	cr_assert_not_null(strstr(message, "--socket-group"), "%s", message);
	cr_assert_neq(access(path, F_OK), 0, "nothing is left behind");
}
