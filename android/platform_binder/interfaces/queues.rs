pub mod fmq {
    pub mod GrantorDescriptor {
        #[derive(Debug, Default)]
        pub struct GrantorDescriptor {
            pub fdIndex: i32,
            pub offset: i32,
            pub extent: i64,
        }
    }
    pub mod MQDescriptor {
        #[derive(Debug, Default)]
        pub struct MQDescriptor<T, Flavor> {
            pub grantors: Vec<super::GrantorDescriptor::GrantorDescriptor>,
            pub handle: super::super::NativeHandle::NativeHandle,
            pub quantum: i32,
            pub flags: i32,
            pub _phantom_T: std::marker::PhantomData<T>,
            pub _phantom_Flavor: std::marker::PhantomData<Flavor>,
        }
    }
    pub mod SynchronizedReadWrite {
        #[derive(Debug, Default)]
        pub struct SynchronizedReadWrite {}
    }
}
