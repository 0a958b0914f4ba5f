/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's FUSE protocol without a library: of its requests only those that opening and reading need; the others are not
 * there, and the kernel does without them. One thread is enough: reads come from a local file, and a silent one is put aside.
 */
#include "tests/support/fuse_drive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 64u
#define REQUEST_BYTES (64u << 10)
#define ANSWER_BYTES (1u << 20)
#define PAGES_MAX 256u /* of one read: as many as an answer has */
#define SILENT_MAX 64u
#define LOOK_MS 5      /* whether silence is over */
#define VALID_S 60

/* Shared by the test and the server. Numbers only; the fault is set last. */
struct fuse_drive_plan {
	_Atomic int fault, error;
	_Atomic uint32_t first, count, reads, failed;
};

struct served_file {
	char name[256];
	int fd;
};

struct silent {
	uint64_t unique;
	struct fuse_read_in read;
};

struct server {
	struct fuse_drive_plan *plan;
	int fd;
	struct served_file file[FILES_MAX];
	uint32_t files;
	struct silent silent[SILENT_MAX];
	uint32_t silent_count;
	_Alignas(8) char request[REQUEST_BYTES];
	_Alignas(8) char answer[ANSWER_BYTES];
};

/* ---- answers ---- */

static void reply(struct server *server, uint64_t unique, int error, const void *bytes, size_t count)
{
	struct fuse_out_header header = {.len = (uint32_t)(sizeof header + count), .error = error, .unique = unique};
	struct iovec parts[2] = {{.iov_base = &header, .iov_len = sizeof header},
				 {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count}};

	(void)writev(server->fd, parts, count > 0 ? 2 : 1); /* who asked may have gone: nothing to do about it */
}

static void fill_attributes(const struct server *server, uint64_t node, struct fuse_attr *attributes)
{
	struct stat status = {.st_mode = S_IFDIR | 0755, .st_nlink = 2};

	if (node > FUSE_ROOT_ID)
		(void)fstat(server->file[node - FUSE_ROOT_ID - 1].fd, &status);
	memset(attributes, 0, sizeof *attributes);
	attributes->ino = node;
	attributes->size = (uint64_t)status.st_size;
	attributes->blocks = (uint64_t)status.st_blocks;
	attributes->mtime = (uint64_t)status.st_mtim.tv_sec;
	attributes->mtimensec = (uint32_t)status.st_mtim.tv_nsec;
	attributes->mode = status.st_mode;
	attributes->nlink = (uint32_t)status.st_nlink;
	attributes->blksize = 4096;
}

static void greet(struct server *server, uint64_t unique)
{
	const struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
					  .minor = FUSE_KERNEL_MINOR_VERSION,
					  .flags = FUSE_ASYNC_READ | FUSE_MAX_PAGES,
					  .max_background = SILENT_MAX,
					  .congestion_threshold = SILENT_MAX,
					  .max_write = 4096,
					  .time_gran = 1,
					  .max_pages = PAGES_MAX};

	reply(server, unique, 0, &out, sizeof out);
}

static void look_up(struct server *server, uint64_t unique, const char *name)
{
	struct fuse_entry_out out = {.entry_valid = VALID_S, .attr_valid = VALID_S};

	for (uint32_t i = 0; i < server->files; i++) {
		if (strcmp(server->file[i].name, name) != 0)
			continue;
		out.nodeid = FUSE_ROOT_ID + 1 + i;
		fill_attributes(server, out.nodeid, &out.attr);
		reply(server, unique, 0, &out, sizeof out);
		return;
	}
	reply(server, unique, -ENOENT, NULL, 0);
}

static void get_attributes(struct server *server, uint64_t unique, uint64_t node)
{
	struct fuse_attr_out out = {.attr_valid = VALID_S};

	fill_attributes(server, node, &out.attr);
	reply(server, unique, 0, &out, sizeof out);
}

static void open_file(struct server *server, uint64_t unique, uint64_t node)
{
	const struct fuse_open_out out = {.fh = node - FUSE_ROOT_ID - 1, .open_flags = FOPEN_DIRECT_IO};

	reply(server, unique, 0, &out, sizeof out);
}

/* All names at once, and then none. There is room: each takes less than 300 bytes. */
static void list_files(struct server *server, uint64_t unique, const struct fuse_read_in *in)
{
	size_t used = 0;

	_Static_assert(FILES_MAX * 300 < ANSWER_BYTES, "all fit");
	for (uint32_t i = 0; i < server->files && in->offset == 0; i++) {
		struct fuse_dirent *entry = (struct fuse_dirent *)(server->answer + used);
		size_t length = strlen(server->file[i].name);

		memset(entry, 0, FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length));
		entry->ino = FUSE_ROOT_ID + 1 + i;
		entry->off = i + 1;
		entry->namelen = (uint32_t)length;
		entry->type = DT_REG;
		memcpy(entry->name, server->file[i].name, length);
		used += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
	}
	reply(server, unique, 0, server->answer, used);
}

/* ---- reads ---- */

static int is_silent(const struct server *server)
{
	return atomic_load_explicit(&server->plan->fault, memory_order_relaxed) == FUSE_DRIVE_SILENT;
}

static void give_bytes(struct server *server, uint64_t unique, const struct fuse_read_in *in, uint32_t most)
{
	uint32_t wanted = in->size < most ? in->size : most;
	ssize_t got = pread(server->file[in->fh].fd, server->answer, wanted, (off_t)in->offset);

	reply(server, unique, got < 0 ? -errno : 0, server->answer, got > 0 ? (size_t)got : 0);
}

/* Whether this read, the next of all, meets the trouble of the plan. */
static int meets_trouble(struct server *server, const struct fuse_read_in *in)
{
	struct fuse_drive_plan *plan = server->plan;
	int fault = atomic_load_explicit(&plan->fault, memory_order_acquire); /* and then the rest of the plan */
	uint32_t number;

	if (fault == FUSE_DRIVE_DIRECT && (in->flags & O_DIRECT) == 0)
		return FUSE_DRIVE_WELL;
	number = 1 + atomic_fetch_add_explicit(&plan->reads, 1, memory_order_relaxed);
	if (fault == FUSE_DRIVE_WELL || number < atomic_load_explicit(&plan->first, memory_order_relaxed) ||
	    number - atomic_load_explicit(&plan->first, memory_order_relaxed) >=
		    atomic_load_explicit(&plan->count, memory_order_relaxed))
		return FUSE_DRIVE_WELL;
	atomic_fetch_add_explicit(&plan->failed, 1, memory_order_relaxed);
	return fault;
}

static void read_file(struct server *server, uint64_t unique, const struct fuse_read_in *in)
{
	switch (meets_trouble(server, in)) {
	case FUSE_DRIVE_ERROR:
		reply(server, unique, -atomic_load_explicit(&server->plan->error, memory_order_relaxed), NULL, 0);
		break;
	case FUSE_DRIVE_END:
		reply(server, unique, 0, NULL, 0);
		break;
	case FUSE_DRIVE_HALF:
		give_bytes(server, unique, in, in->size / 2);
		break;
	case FUSE_DRIVE_SILENT:
		if (server->silent_count < SILENT_MAX)
			server->silent[server->silent_count++] = (struct silent){.unique = unique, .read = *in};
		break;
	case FUSE_DRIVE_DIRECT:
		reply(server, unique, -EINVAL, NULL, 0);
		break;
	default:
		give_bytes(server, unique, in, ANSWER_BYTES);
	}
}

static void end_silence(struct server *server)
{
	if (is_silent(server))
		return;
	for (uint32_t i = 0; i < server->silent_count; i++)
		give_bytes(server, server->silent[i].unique, &server->silent[i].read, ANSWER_BYTES);
	server->silent_count = 0;
}

/* ---- the server ---- */

static void serve_one(struct server *server)
{
	const struct fuse_in_header *header = (const struct fuse_in_header *)server->request;
	const void *body = header + 1;

	switch (header->opcode) {
	case FUSE_INIT:
		greet(server, header->unique);
		break;
	case FUSE_LOOKUP:
		look_up(server, header->unique, body);
		break;
	case FUSE_GETATTR:
		get_attributes(server, header->unique, header->nodeid);
		break;
	case FUSE_OPEN:
		open_file(server, header->unique, header->nodeid);
		break;
	case FUSE_READ:
		read_file(server, header->unique, body);
		break;
	case FUSE_OPENDIR:
		reply(server, header->unique, 0, &(struct fuse_open_out){0}, sizeof(struct fuse_open_out));
		break;
	case FUSE_READDIR:
		list_files(server, header->unique, body);
		break;
	case FUSE_RELEASEDIR:
	case FUSE_RELEASE:
		reply(server, header->unique, 0, NULL, 0);
		break;
	case FUSE_STATFS:
		reply(server, header->unique, 0, &(struct fuse_statfs_out){.st.bsize = 4096, .st.namelen = 255},
		      sizeof(struct fuse_statfs_out));
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break; /* no answer is expected */
	default:
		reply(server, header->unique, -ENOSYS, NULL, 0);
	}
}

static void serve(struct server *server)
{
	for (;;) {
		struct pollfd wait = {.fd = server->fd, .events = POLLIN};
		ssize_t n;

		end_silence(server);
		if (poll(&wait, 1, server->silent_count > 0 ? LOOK_MS : -1) < 1)
			continue;
		n = read(server->fd, server->request, sizeof server->request);
		if (n < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT)
			return; /* unmounted */
		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			serve_one(server);
	}
}

static int open_files(struct server *server, const char *source)
{
	DIR *folder = opendir(source);
	struct dirent *entry;

	while (folder != NULL && server->files < FILES_MAX && (entry = readdir(folder)) != NULL) {
		struct served_file *file = &server->file[server->files];

		if (entry->d_type != DT_REG)
			continue;
		file->fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (file->fd < 0)
			break;
		(void)snprintf(file->name, sizeof file->name, "%s", entry->d_name);
		server->files++;
	}
	if (folder != NULL)
		(void)closedir(folder);
	return server->files > 0 ? 0 : -1;
}

/* ---- the test's side ---- */

static const char *mount_it(struct fuse_drive *drive, int fd)
{
	char options[128];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return "no mount namespace of our own";
	(void)mkdir(drive->mount, 0755);
	(void)snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
	if (mount("cnre-test", drive->mount, "fuse", MS_NOSUID | MS_NODEV | MS_RDONLY, options) < 0)
		return "FUSE cannot be mounted here";
	return NULL;
}

const char *fuse_drive_open(struct fuse_drive *drive, const char *source, const char *mount_point)
{
	const char *reason;
	int fd;

	memset(drive, 0, sizeof *drive);
	(void)snprintf(drive->mount, sizeof drive->mount, "%s", mount_point);
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0 || geteuid() != 0)
		return "needs root and /dev/fuse";
	drive->plan = mmap(NULL, sizeof *drive->plan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (drive->plan == MAP_FAILED)
		return "no memory";
	reason = mount_it(drive, fd);
	drive->server = reason == NULL ? fork() : 0;
	if (reason == NULL && drive->server == 0) {
		static struct server server;

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* with its last server the file system answers at once: it is gone */
		server.plan = drive->plan;
		server.fd = fd;
		if (open_files(&server, source) == 0)
			serve(&server);
		_exit(0);
	}
	(void)close(fd);
	return reason;
}

void fuse_drive_close(struct fuse_drive *drive)
{
	(void)umount2(drive->mount, MNT_DETACH);
	(void)kill(drive->server, SIGKILL);
	(void)waitpid(drive->server, NULL, 0);
	(void)munmap(drive->plan, sizeof *drive->plan);
	(void)rmdir(drive->mount);
}

void fuse_drive_trouble(struct fuse_drive *drive, struct fuse_drive_trouble trouble)
{
	struct fuse_drive_plan *plan = drive->plan;

	fuse_drive_heal(drive);
	atomic_store_explicit(&plan->error, trouble.error, memory_order_relaxed);
	atomic_store_explicit(&plan->first, trouble.first, memory_order_relaxed);
	atomic_store_explicit(&plan->count, trouble.count, memory_order_relaxed);
	atomic_store_explicit(&plan->failed, 0, memory_order_relaxed);
	atomic_store_explicit(&plan->reads, 0, memory_order_relaxed);
	/* Release: the server finds the rest of the plan when it finds the fault. */
	atomic_store_explicit(&plan->fault, trouble.fault, memory_order_release);
}

void fuse_drive_heal(struct fuse_drive *drive)
{
	atomic_store_explicit(&drive->plan->fault, FUSE_DRIVE_WELL, memory_order_relaxed);
}

uint32_t fuse_drive_reads(const struct fuse_drive *drive)
{
	return atomic_load_explicit(&drive->plan->reads, memory_order_relaxed);
}

uint32_t fuse_drive_failed(const struct fuse_drive *drive)
{
	return atomic_load_explicit(&drive->plan->failed, memory_order_relaxed);
}
