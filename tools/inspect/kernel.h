/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few structures of the kernel that cnre-inspect's programs read, and of each only the members that they read. Where these
 * lie in the running kernel, its BTF says when the programs are loaded (CO-RE), so what is built on one machine runs on
 * another; nothing of the kernel of the machine that builds is needed.
 */
#ifndef CNRE_TOOLS_INSPECT_KERNEL_H
#define CNRE_TOOLS_INSPECT_KERNEL_H

#include <linux/types.h>

#ifdef __bpf__ /* anybody else may read this file, but has no use for it */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct super_block {
	__u32 s_dev;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	__u32 i_rdev;
};

struct address_space {
	struct inode *host;
};

struct page {
	struct address_space *mapping;
};

struct bio_vec {
	struct page *bv_page;
};

struct bvec_iter {
	__u64 bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct block_device {
	__u32 bd_dev;
};

struct bio {
	struct block_device *bi_bdev;
	__u32 bi_opf;
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
};

struct task_struct {
	unsigned int flags;
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

#define KERNEL_OPERATION_MASK 0xffu       /* of bi_opf; 0 is a read */
#define KERNEL_THREAD 0x00200000u         /* PF_KTHREAD of task_struct.flags */
#define KERNEL_MAPPING_MARKS 3ul          /* low bits of page.mapping: it is none */
#define KERNEL_MINOR_BITS 20u             /* of a device's number inside the kernel */

#endif
