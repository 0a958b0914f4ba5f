/* SPDX-License-Identifier: Apache-2.0 */
/* What cnre-inspect wants to know of a program or library: which probes are in it, and whose code an address is. */
#ifndef CNRE_TOOLS_INSPECT_ELF_FILE_H
#define CNRE_TOOLS_INSPECT_ELF_FILE_H

#include <stdint.h>

#define ELF_FILE_PATH_BYTES 32u

struct elf_file;

/* 0, or -errno: -ENOEXEC is no ELF file, or none of a program that can be loaded. *ret_file is set on success only. */
int elf_file_open(struct elf_file **ret_file, const char *path);
struct elf_file *elf_file_close(struct elf_file *file); /* NULL is fine */

/*
 * A path of the very file that was opened, whatever has been put in its place meanwhile: who attaches by the name that a client
 * gave would attach in another file, by the notes of this one. As long as the file is open.
 */
const char *elf_file_path(const struct elf_file *file);

/* 0: it has no notes about probes at all: built without them, or stripped of .note.stapsdt. */
int elf_file_has_notes(const struct elf_file *file);
/* How many places there are in it. */
uint32_t elf_file_probes(const struct elf_file *file, const char *provider, const char *name);

/* The function around an offset in the file, and how far into it; NULL: no symbol says. As long as the file is open. */
const char *elf_file_symbol(struct elf_file *file, uint64_t file_off, uint64_t *ret_into);

#endif
